"""Critical N by sequential search: which runs a cell needs next, given the results so far."""

#!/bin/bash
# A TPU slice with several hosts: one process a host, each on the chips of its own host. Run this on your own machine.
#
#     bash sweeps/launch/tpu-pod.sh
#
# JAX knows the hosts of a slice, and so the share of each. It is asked in a process of its own, so that the hosts do not wait for
# each other, and one that fails ends none of the others. Each writes to its own disk; parts are named by what they hold, so the
# folders of all hosts go into one.

set -euo pipefail
NAME=${NAME:-jaxrecall} ZONE=${ZONE:-us-central2-b} TYPE=${TYPE:-v4-32} BUCKET=${BUCKET:?a bucket, as in gs://yours/jaxrecall}
on_all() { gcloud compute tpus tpu-vm ssh "$NAME" --zone="$ZONE" --worker=all --command="$1"; }

gcloud compute tpus tpu-vm create "$NAME" --zone="$ZONE" --accelerator-type="$TYPE" --version=tpu-ubuntu2204-base
git archive --format=tar.gz -o /tmp/jaxrecall.tar.gz HEAD
gcloud compute tpus tpu-vm scp /tmp/jaxrecall.tar.gz "$NAME": --zone="$ZONE" --worker=all
on_all 'mkdir -p jaxrecall && tar -xzf jaxrecall.tar.gz -C jaxrecall && cd jaxrecall && python3 -m venv .venv && .venv/bin/pip install -e . "jax[tpu]"'
SHARE='import jax; jax.distributed.initialize(); print(jax.process_index(), jax.process_count(), sep="/")'
on_all "cd jaxrecall && .venv/bin/python -m jaxrecall.sweep --grid sweeps/capacity.yaml --out results/capacity --shard \$(.venv/bin/python -c '$SHARE')"
on_all "gcloud storage rsync -r jaxrecall/results/capacity $BUCKET/capacity"

# here: one folder again, with the picture; then let the slice go
gcloud storage rsync -r "$BUCKET/capacity" results/capacity
python -m jaxrecall.sweep --grid sweeps/capacity.yaml --out results/capacity
echo "when all is there: gcloud compute tpus tpu-vm delete $NAME --zone=$ZONE"

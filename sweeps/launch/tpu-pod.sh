#!/bin/bash
# A sweep on a TPU slice with several hosts: each host runs a share of the grid on its own chips. Run this on your own machine:
#
#     BUCKET=gs://yours/jaxrecall bash sweeps/launch/tpu-pod.sh [GRID [DIR]]
#
# Every host copies its rows to the bucket each minute; the machine needs the right to write there. If a host fails, the others
# go on, all rows come to DIR, and the exit code is not 0. The same line continues after whatever stopped it: a machine that exists
# is used again, one that was taken away is made anew, and the hosts start with the rows in the bucket. Ctrl-C ends this script, but
# not the hosts: the same line ends what they do after the batch in flight, and continues.
#
# With the package from pip instead of a clone, say what the hosts install: PACKAGE=jaxrecall-0.2.0-py3-none-any.whl, or a URL.

set -euo pipefail

# copies rows from a bucket, if it has some
fetch() {
    local folder
    for folder in parts failures; do
        mkdir -p "$2/$folder"
        if gcloud storage ls "$1/$folder/" > /dev/null 2>&1; then
            gcloud storage rsync --recursive "$1/$folder" "$2/$folder"
        fi
    done
}

# copies rows to a bucket. Parts are named by what they hold, so hosts share a folder. manifest.json differs between hosts.
copy() {
    local folder failed=0
    for folder in parts failures; do
        if compgen -G "$1/$folder/*" > /dev/null; then
            gcloud storage rsync --recursive "$1/$folder" "$2/$folder" || failed=1
        fi
    done
    return $failed
}

# --- on each host ---

# what Google tells a TPU machine about itself; JAX and Ray read the same attributes
metadata() {
    curl -sSf -H "Metadata-Flavor: Google" "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

host() {
    local index hosts bounds out sweep code
    cd "$(dirname "$0")"
    source ./settings
    index=$(metadata agent-worker-number)
    hosts=$(metadata worker-network-endpoints | tr ',' '\n' | grep -c .)
    out=results/$RUN

    # a sweep of an earlier call, which lost its connection, still has the chips
    exec 9> lock
    if ! flock --nonblock 9; then
        kill $(cat pids) || true
        flock --wait "$PATIENCE" 9 || { kill -KILL $(cat pids) || true; flock 9; }
    fi
    echo $$ > pids

    # fails at once without the right to write
    echo "share $index/$hosts" | gcloud storage cp - "$BUCKET/$RUN/host-$index/share.txt"
    fetch "$BUCKET/$RUN" "$out"
    if [ "$(cat installed 2> /dev/null)" != "$WHEEL $SUM" ]; then
        # Ubuntu 22.04 has Python 3.10; uv brings one that is new enough (https://docs.astral.sh/uv/guides/install-python/)
        python3 -m pip install --quiet --user uv
        rm -rf .venv
        python3 -m uv venv --python 3.12 .venv
        python3 -m uv pip install --python .venv/bin/python "./$WHEEL" "jax[tpu]"
        echo "$WHEEL $SUM" > installed
    fi

    # JAX would start the whole slice and wait for all hosts. These three let it see the chips of this host alone
    # (https://github.com/jax-ml/jax/issues/8809); hosts of v2 and v3 do not tell their bounds, and have 2 x 2 chips.
    bounds=$(metadata tpu-env | sed -n "s/^CHIPS_PER_HOST_BOUNDS: *'\([0-9,]*\)'.*/\1/p")
    export TPU_PROCESS_BOUNDS=1,1,1 TPU_CHIPS_PER_PROCESS_BOUNDS=${bounds:=2,2,1}
    TPU_VISIBLE_CHIPS=$(seq -s, 0 $((${bounds//,/*} - 1)))
    export TPU_VISIBLE_CHIPS

    .venv/bin/python -m jaxrecall.sweep --grid "$GRID" --out "$out" --shard "$index/$hosts" &
    sweep=$!
    echo "$$ $sweep" > pids
    while sleep "$EVERY" && kill -0 $sweep; do copy "$out" "$BUCKET/$RUN"; done > copies.log 2>&1 9>&- &
    wait $sweep && code=0 || code=$?
    copy "$out" "$BUCKET/$RUN" || code=$((code ? code : 1))
    gcloud storage cp "$out/manifest.json" "$BUCKET/$RUN/host-$index/" || code=$((code ? code : 1))
    exit $code
}

# --- on your machine ---

tpu() { gcloud compute tpus tpu-vm "$1" "$NAME" --zone="$ZONE" "${@:2}"; }

# a READY machine: the one that exists, or a new one
machine() {
    local state
    if ! state=$(tpu describe --format='value(state)' 2> "$PACK/error"); then
        grep -q NOT_FOUND "$PACK/error" || { cat "$PACK/error" >&2; exit 1; }
    fi
    if [[ $state == PREEMPTED || $state == TERMINATED ]]; then
        echo "$NAME is $state: it is deleted and made anew"
        tpu delete --quiet
        state=
    fi
    if [ -z "$state" ]; then
        tpu create --accelerator-type="$TYPE" --version=tpu-ubuntu2204-base $SPOT
    elif [ "$state" != READY ]; then
        echo "$NAME is $state; try again when it is READY" >&2
        exit 1
    fi
}

# what the hosts need, in $PACK: this script, the package, the grid, the modules beside it, and the tables that it names
pack() {
    local file
    mkdir "$PACK/files"
    python -m pip wheel --quiet --no-deps --wheel-dir "$PACK/files" "$PACKAGE"
    WHEEL=$(basename "$PACK"/files/jaxrecall-*.whl)
    SUM=$(cksum < "$PACK/files/$WHEEL")
    for file in "$(dirname "$1")"/*; do
        if [[ -f $file ]] && { [[ $file == *.py ]] || grep -qF -- "$(basename "$file")" "$1"; }; then
            cp "$file" "$PACK/files"
        fi
    done
    cp "$1" "$PACK/files"
    cp "$0" "$PACK/files/tpu-pod.sh"
    declare -p GRID RUN BUCKET EVERY PATIENCE WHEEL SUM > "$PACK/files/settings"
    tar -czf "$PACK/jaxrecall-pod.tar.gz" -C "$PACK/files" .
}

here() {
    local grid=${1:-sweeps/capacity.yaml} dir code
    NAME=${NAME:-jaxrecall} ZONE=${ZONE:-us-central2-b} TYPE=${TYPE:-v4-32}
    SPOT=${SPOT:-}                     # --spot: cheap, and may be taken away
    EVERY=${EVERY:-60}                 # seconds between copies
    PATIENCE=${PATIENCE:-300}          # seconds that the batch in flight of an earlier call may take
    PACKAGE=${PACKAGE:-.}              # a clone, a wheel, or whatever else pip installs
    : "${BUCKET:?a bucket, as in gs://yours/jaxrecall}"
    GRID=$(basename "$grid")
    RUN=${GRID%.yaml}
    dir=${2:-results/$RUN}
    PACK=$(mktemp -d)
    trap 'rm -rf "$PACK"' EXIT

    python -m jaxrecall.sweep --grid "$grid" --out "$dir" --dry-run     # refuses what the hosts would refuse
    pack "$grid"
    machine
    # the others go on without a host that cannot be reached
    gcloud compute tpus tpu-vm scp "$PACK/jaxrecall-pod.tar.gz" "$NAME:" --zone="$ZONE" --worker=all || true
    tpu ssh --worker=all --command='mkdir -p jaxrecall && tar -xzf jaxrecall-pod.tar.gz -C jaxrecall && bash jaxrecall/tpu-pod.sh --host' && code=0 || code=$?
    fetch "$BUCKET/$RUN" "$dir"
    if [ $code != 0 ]; then
        echo "a host did not finish (exit code $code). $dir has the rows of the bucket; the same line continues" >&2
        exit $code
    fi
    python -m jaxrecall.sweep --grid "$grid" --out "$dir"     # nothing is left to run: this draws the figure
    echo "to let the machine go: gcloud compute tpus tpu-vm delete $NAME --zone=$ZONE"
}

if [ "${1:-}" = --host ]; then host; else here "$@"; fi
exit

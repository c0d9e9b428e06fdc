#!/bin/sh
# Submits prep, then train for each fold, then eval. All of them start in the folder $1.
set -eu
program=$(realpath "$(dirname "$0")/pipeline.py")
folder=$1
stage() {
    name=$1
    shift
    admit submit -q research --name "$name" --cpu 500m --memory 128Mi --time 10m --chdir "$folder" \
        --input "$program" "$@" -- python3 pipeline.py "$name"
}
stage prep
stage train --array 0-2 --after prep
stage eval --after train --output report.json

#!/bin/sh
# A training that goes on from its last epoch after each preemption, and leaves its model.
#ADMIT -q research --name classifier --cpu 4 --memory 256Mi --time 1h
#ADMIT --input deploy/samples/machines/train.py --output model.json
python3 deploy/samples/machines/train.py "$@" && cp "$ADMITTANCE_CHECKPOINT_DIR/model.json" .

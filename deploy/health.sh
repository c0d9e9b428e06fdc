#!/bin/sh
# The health check of a container: 0 when its service said lately that it is ready, else 1 and why.
# The service writes the file (ADMIT_HEALTH_FILE): until when it counts, and what is wrong, if anything.
# No Python is started: that took a hundred times as much CPU, more than the idle service itself.
file=${ADMIT_HEALTH_FILE:-/tmp/admittance-health}
if ! read -r until reason 2>/dev/null <"$file"; then
  echo "the service has not said yet how it is" >&2
  exit 1
fi
if [ "$(date +%s)" -ge "$until" ]; then
  echo "no sign of life from the service" >&2
  exit 1
fi
if [ -n "$reason" ]; then
  echo "$reason" >&2
  exit 1
fi

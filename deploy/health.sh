#!/bin/sh
# The health check of a container: exits with 0 if its service reported lately that it is ready, else
# with 1 and the reason. The service writes the file (ADMIT_HEALTH_FILE): the time until which it is
# valid, and the reason if the service is not ready. Starting Python here would use more CPU than the
# idle service itself.
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

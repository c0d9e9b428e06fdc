"""The conformance kit for check controllers. It plays the workload-controller's part."""

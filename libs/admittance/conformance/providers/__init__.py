"""The conformance kit for providers of capacity. The kit plays the provisioning check's part."""

"""Device back ends: NVML, AMD SMI, Redfish and a fake one behind one protocol."""

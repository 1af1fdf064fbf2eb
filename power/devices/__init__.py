"""Device back ends: NVML, AMD SMI, Redfish and fakes behind one protocol."""

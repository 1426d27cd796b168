//! Counts of a device. The tests of other packages include this file.

/// Counts for `cuda_sim_report`. The layout is part of the interface.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Report {
    /// Device allocations that were not freed.
    pub allocations: u64,
    pub allocation_bytes: u64,
    /// Pinned blocks that were not freed or unregistered.
    pub host_allocations: u64,
    /// Streams that were not destroyed.
    pub streams: u64,
    pub events: u64,
    pub modules: u64,
    /// References to the primary context.
    pub contexts: u64,
    /// Objects of all these kinds that were alive when the context was destroyed.
    pub lost: u64,
    /// Operations that were queued and have not run.
    pub pending: u64,
    pub operations_run: u64,
    pub kernels_run: u64,
    pub injected_failures: u64,
    /// Accesses outside of the memory that was allocated at the time.
    pub illegal_accesses: u64,
    /// Largest amount of device memory in use.
    pub peak_bytes: u64,
    /// Calls that allocated device memory or pinned memory, and so make a device wait.
    pub allocation_calls: u64,
    /// Waits for events that keep a core busy: waits for events made without CU_EVENT_BLOCKING_SYNC.
    pub spinning_waits: u64,
    /// Pageable host memory that other libraries' work reads. The thread that queues the work copies it, and waits.
    pub pageable_inputs: u64,
    /// Streams that were not destroyed and have a priority above the lowest.
    pub urgent_streams: u64,
}

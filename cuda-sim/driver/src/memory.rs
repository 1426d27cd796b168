//! Device memory: each device has a reserved range of host addresses with its own allocator, and a table of the memory
//! that may be accessed. Pinned host memory has a table too.
//!
//! The *host's* view changes when a call is made, the *device's* view when the queued operation runs. If images are run
//! (`crate::ptx`), host code that uses an address of the device faults; the content lies `APART` bytes further. The
//! lock of this memory is always taken after the scheduler's.

use crate::config::{MOST_DEVICES, NOOP};
use crate::ptx;
use crate::random::Random;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Content of memory before the first write.
const FRESH: u8 = 0xCB;
/// Content of memory after it is freed.
const FREED: u8 = 0xDF;
/// Content left by hardware that writes ahead of its stream's order.
const SCRIBBLE: u8 = 0x5C;
/// Content of the bytes after each allocation.
const FENCE: u8 = 0xFE;
const FENCE_BYTES: usize = 512;
/// Alignment of CUDA's allocator.
const ALIGN: usize = 512;
const PAGE: usize = 4096;
/// The pool of memory whose pool was destroyed.
const NO_POOL: u64 = u64::MAX;

/// The addresses of devices whose memory is not mapped there, and the distance to where it is mapped (`kApart` in
/// cpp/ptx.cpp). No system has such addresses in use by itself.
const UNMAPPED: std::ops::Range<usize> = 0x2000_0000_0000..0x3000_0000_0000;
const APART: usize = 0x1000_0000_0000;

/// The host's address of the memory at an address, of a device or of its own.
pub fn host(address: usize) -> usize {
    if UNMAPPED.contains(&address) { address + APART } else { address }
}

static MEMORY: Mutex<[Memory; MOST_DEVICES]> = Mutex::new([const { Memory::new() }; MOST_DEVICES]);
/// Counts changes of the device's view, so that caches of `check` notice them.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// The first check that failed since this was last read.
static REFUSED: Mutex<Option<String>> = Mutex::new(None);

/// The memory of the device that this thread works on.
pub fn memory() -> OfDevice {
    let (device, owner) = PLACE.get();
    let mut all = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    all[device].owner = owner;
    OfDevice { all, device }
}

/// Makes this thread work on a device from now on, in the context of a slot.
pub fn enter(device: usize, slot: usize) {
    PLACE.set((device, slot));
    LAST.set((0, 0, 0));
}

/// A device's memory, while the memory of all devices is locked.
pub struct OfDevice {
    all: MutexGuard<'static, [Memory; MOST_DEVICES]>,
    device: usize,
}

impl OfDevice {
    /// Whether an address is in any device's range, allocated or not.
    pub fn is_device_address(&self, address: usize) -> bool {
        self.all.iter().any(|memory| (memory.arena_base..memory.arena_base + memory.arena_bytes).contains(&address))
    }

    /// Pinned memory of all devices, in bytes.
    pub fn pinned_bytes(&self) -> usize {
        self.all.iter().flat_map(|memory| memory.host.values()).map(|block| block.size).sum()
    }
}

impl Deref for OfDevice {
    type Target = Memory;
    fn deref(&self) -> &Memory {
        &self.all[self.device]
    }
}

impl DerefMut for OfDevice {
    fn deref_mut(&mut self) -> &mut Memory {
        &mut self.all[self.device]
    }
}

struct Allocation {
    base: usize,
    size: usize,
    /// Size with the fence, rounded up.
    span: usize,
    /// Whether the device has the memory: the allocation has run, and the free has not.
    live: bool,
    /// The stream whose queue holds the free, as long as an allocation in that stream's order can take over the span.
    freeing_on: Option<u64>,
    /// Whether the span went to a later allocation of the same stream, so that the free does not release it.
    taken_over: bool,
    /// The number of the pool that it is from; 0 for none.
    pool: u64,
    /// The slot of the context that has allocated it.
    owner: usize,
    /// Its part of the device's memory.
    charge: usize,
}

/// Memory that a pool keeps for later allocations from it.
#[derive(Clone, Copy)]
struct Kept {
    pool: u64,
    bytes: usize,
    charge: usize,
}

pub struct HostBlock {
    pub size: usize,
    pub id: u64,
    pub flags: u32,
    /// Whether the memory was allocated here, and not registered by its owner.
    pub owned: bool,
    /// The slot of the context that has pinned it.
    owner: usize,
}

pub struct Memory {
    arena_base: usize,
    arena_bytes: usize,
    capacity_bytes: usize,
    used_bytes: usize,
    peak_bytes: usize,
    next_id: u64,
    allocations: BTreeMap<u64, Allocation>,
    /// Allocations by base address, as the host sees them.
    usable: BTreeMap<usize, u64>,
    /// Allocations by base address, as the device sees them.
    live: BTreeMap<usize, u64>,
    /// Free spans by address.
    free: BTreeMap<usize, usize>,
    /// Free spans of pools by address.
    kept: BTreeMap<usize, Kept>,
    /// The slot of the context for which the memory is used now.
    owner: usize,
    cursor: usize,
    /// Recently freed address ranges, for messages.
    freed: VecDeque<(usize, usize)>,
    host: BTreeMap<usize, HostBlock>,
    /// Pinned memory freed while operations were queued, which may still read it.
    quarantine: Vec<(usize, usize)>,
}

impl Memory {
    const fn new() -> Self {
        Memory {
            arena_base: 0,
            arena_bytes: 0,
            capacity_bytes: 0,
            used_bytes: 0,
            peak_bytes: 0,
            next_id: 1,
            allocations: BTreeMap::new(),
            usable: BTreeMap::new(),
            live: BTreeMap::new(),
            free: BTreeMap::new(),
            kept: BTreeMap::new(),
            owner: 0,
            cursor: 0,
            freed: VecDeque::new(),
            host: BTreeMap::new(),
            quarantine: Vec::new(),
        }
    }

    /// Resets everything. The queues must be empty.
    pub fn reset(&mut self, capacity_bytes: usize) {
        // Room for fences and for gaps between allocations. Untouched pages cost nothing.
        let arena_bytes = capacity_bytes.saturating_mul(4).next_multiple_of(PAGE);
        if arena_bytes > self.arena_bytes {
            self.map(arena_bytes);
        }
        let host = std::mem::take(&mut self.host);
        self.quarantine.extend(host.into_iter().filter(|(_, block)| block.owned).map(|(base, b)| (base, b.size)));
        self.drain_quarantine();
        self.allocations.clear();
        self.usable.clear();
        self.live.clear();
        self.freed.clear();
        self.kept.clear();
        self.free = BTreeMap::from([(self.arena_base, arena_bytes)]);
        self.cursor = 0;
        self.capacity_bytes = capacity_bytes;
        self.used_bytes = 0;
        self.peak_bytes = 0;
        GENERATION.fetch_add(1, Ordering::Release);
        take_refusal();
    }

    /// Drops all objects of the context. Its queues must be empty.
    pub fn clear(&mut self) {
        let owner = self.owner;
        let (gone, left) = std::mem::take(&mut self.allocations).into_iter().partition(|(_, of)| of.owner == owner);
        self.allocations = left;
        let gone: BTreeMap<u64, Allocation> = gone;
        for (id, Allocation { base, span, taken_over, charge, .. }) in gone {
            self.usable.remove(&base);
            if self.live.get(&base) == Some(&id) {
                self.live.remove(&base);
            }
            if !taken_over {
                self.used_bytes -= charge;
                self.give_span(base, span);
            }
        }
        let owned = self.host.iter().filter(|(_, block)| block.owner == owner && block.owned);
        self.quarantine.extend(owned.map(|(base, block)| (*base, block.size)));
        self.host.retain(|_, block| block.owner != owner);
        GENERATION.fetch_add(1, Ordering::Release);
    }

    fn map(&mut self, bytes: usize) {
        if self.arena_bytes > 0 {
            // SAFETY: the range is the one mapped below, and no operation that could touch it is queued.
            unsafe { libc::munmap(host(self.arena_base) as *mut libc::c_void, self.arena_bytes) };
        }
        // The next addresses of devices; those of an arena that became too small are not used again.
        static NEXT: AtomicU64 = AtomicU64::new(UNMAPPED.start as u64);
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut wanted = 0;
        if ptx::is_on() {
            flags |= libc::MAP_FIXED_NOREPLACE;
            wanted = host(NEXT.fetch_add(bytes as u64 + (1 << 30), Ordering::Relaxed) as usize);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the system's choice, or at one that is not in use, touches no
        // existing memory.
        let base = unsafe { libc::mmap(wanted as *mut libc::c_void, bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED || wanted > 0 && base as usize != wanted {
            eprintln!("cuda-sim: cannot reserve {bytes} bytes of addresses for CUDA_SIM_MEMORY_BYTES");
            std::process::exit(2);
        }
        self.arena_base = if wanted > 0 { wanted - APART } else { base as usize };
        self.arena_bytes = bytes;
    }

    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    /// Number of allocations that the context has not freed, and their bytes.
    pub fn usable(&self) -> (usize, usize) {
        let own = self.usable.values().map(|id| &self.allocations[id]).filter(|of| of.owner == self.owner);
        own.fold((0, 0), |(count, bytes), allocation| (count + 1, bytes + allocation.size))
    }

    /// Number of pinned blocks that the context has not freed or unregistered.
    pub fn host_blocks(&self) -> usize {
        self.host.values().filter(|block| block.owner == self.owner).count()
    }

    /// Finds addresses for an allocation, which the device has only after `activate`: for one from a pool in the order
    /// of a stream, `order` has both. It may take over a span whose free is queued there, or lie in memory that the
    /// pool keeps.
    pub fn reserve(&mut self, size: usize, order: Option<(u64, u64)>, random: &mut Random) -> Option<(u64, u64)> {
        let charge = charge_of(size)?;
        let need = charge.checked_add(FENCE_BYTES)?;
        let pool = order.map_or(0, |(_, pool)| pool);
        let (base, span, charge) = match order.and_then(|order| self.reuse(need, charge, order, random)) {
            Some(found) => found,
            None => {
                if charge > self.capacity_bytes - self.used_bytes {
                    return None;
                }
                self.used_bytes += charge;
                (self.take_span(need, random)?, need, charge)
            }
        };
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        let id = self.next_id;
        self.next_id += 1;
        let (live, freeing_on, taken_over, owner) = (false, None, false, self.owner);
        let allocation = Allocation { base, size, span, live, freeing_on, taken_over, pool, owner, charge };
        self.allocations.insert(id, allocation);
        self.usable.insert(base, id);
        Some((id, base as u64))
    }

    /// A span of the pool for an allocation in a stream's order, its size, and its part of the memory.
    fn reuse(
        &mut self,
        need: usize,
        charge: usize,
        (stream, pool): (u64, u64),
        random: &mut Random,
    ) -> Option<(usize, usize, usize)> {
        if *NOOP {
            return None;
        }
        let owner = self.owner;
        let fits = |a: &Allocation| {
            (a.freeing_on, a.pool, a.owner) == (Some(stream), pool, owner) && a.span >= need && a.span <= need * 2
        };
        if random.coin()
            && let Some(old) = self.allocations.values_mut().find(|allocation| fits(allocation))
        {
            (old.freeing_on, old.taken_over) = (None, true);
            return Some((old.base, old.span, old.charge));
        }
        let (&base, &kept) = self.kept.iter().find(|(_, kept)| kept.pool == pool && kept.bytes >= need)?;
        self.kept.remove(&base);
        if kept.bytes - need < ALIGN + FENCE_BYTES || kept.charge < charge {
            return Some((base, kept.bytes, kept.charge));
        }
        let rest = Kept { pool, bytes: kept.bytes - need, charge: kept.charge - charge };
        self.kept.insert(base + need, rest);
        Some((base, need, charge))
    }

    /// Keeps a free span for a pool. Spans that touch are one.
    fn keep(&mut self, mut base: usize, mut new: Kept) {
        if let Some(next) = self.kept.get(&(base + new.bytes)).copied().filter(|next| next.pool == new.pool) {
            self.kept.remove(&(base + new.bytes));
            (new.bytes, new.charge) = (new.bytes + next.bytes, new.charge + next.charge);
        }
        if let Some((&before, &kept)) = self.kept.range(..base).next_back()
            && kept.pool == new.pool
            && before + kept.bytes == base
        {
            base = before;
            (new.bytes, new.charge) = (new.bytes + kept.bytes, new.charge + kept.charge);
        }
        self.kept.insert(base, new);
    }

    /// Bytes of a pool that are allocated, and bytes that it keeps.
    pub fn pool_bytes(&self, pool: u64) -> (usize, usize) {
        let used = self.allocations.values().filter(|allocation| allocation.pool == pool && !allocation.taken_over);
        let kept = self.kept.values().filter(|kept| kept.pool == pool);
        (used.map(|allocation| allocation.charge).sum(), kept.map(|kept| kept.charge).sum())
    }

    /// Gives a pool's free memory back to the device, until the pool has at most `keep_bytes` in all.
    pub fn trim(&mut self, pool: u64, keep_bytes: usize) {
        let (used, kept) = self.pool_bytes(pool);
        let mut too_many = (used + kept).saturating_sub(keep_bytes);
        while too_many > 0 {
            let Some((&base, &kept)) = self.kept.iter().find(|(_, kept)| kept.pool == pool) else { return };
            self.kept.remove(&base);
            self.used_bytes -= kept.charge;
            self.give_span(base, kept.bytes);
            too_many = too_many.saturating_sub(kept.charge);
        }
    }

    /// A pool is destroyed: the memory that it keeps goes back now, and allocated memory when it is freed.
    pub fn drop_pool(&mut self, pool: u64) {
        self.trim(pool, 0);
        self.allocations.values_mut().filter(|of| of.pool == pool).for_each(|of| of.pool = NO_POOL);
    }

    /// Takes the lowest free span, so that addresses are soon reused, or one further on, so that stale addresses stay
    /// stale.
    fn take_span(&mut self, need: usize, random: &mut Random) -> Option<usize> {
        let from = if random.coin() { 0 } else { self.cursor };
        let fits = |&(_, &bytes): &(&usize, &usize)| bytes >= need;
        let found = self.free.range(from..).find(fits).or_else(|| self.free.iter().find(fits));
        let (base, bytes) = found.map(|(&base, &bytes)| (base, bytes))?;
        self.free.remove(&base);
        if bytes > need {
            self.free.insert(base + need, bytes - need);
        }
        self.cursor = base + need;
        Some(base)
    }

    fn give_span(&mut self, mut base: usize, mut bytes: usize) {
        if let Some(next) = self.free.remove(&(base + bytes)) {
            bytes += next;
        }
        if let Some((&before, &length)) = self.free.range(..base).next_back()
            && before + length == base
        {
            base = before;
            bytes += length;
        }
        self.free.insert(base, bytes);
    }

    /// The allocation runs on the device: its memory now exists, filled with a pattern.
    pub fn activate(&mut self, id: u64) {
        if let Some(allocation) = self.allocations.get_mut(&id) {
            allocation.live = true;
            let (base, size, span) = (allocation.base, allocation.size, allocation.span);
            if !*NOOP {
                fill(base, FRESH, size);
                fill(base + size, FENCE, span - size);
            }
            self.live.insert(base, id);
            GENERATION.fetch_add(1, Ordering::Release);
        }
    }

    /// The host frees an allocation. The device has it until `release`.
    pub fn retire(&mut self, address: u64, stream: Option<u64>) -> Result<u64, String> {
        let owner = self.owner;
        let is_own = |id: &u64| self.allocations.get(id).is_some_and(|allocation| allocation.owner == owner);
        let Some(id) = self.usable.get(&(address as usize)).copied().filter(is_own) else {
            return Err(format!("{} is not the start of an allocation{}", hex(address), self.history(address, 1)));
        };
        self.usable.remove(&(address as usize));
        if let Some(allocation) = self.allocations.get_mut(&id) {
            allocation.freeing_on = stream;
            if self.freed.len() == 4096 {
                self.freed.pop_front();
            }
            self.freed.push_back((allocation.base, allocation.size));
        }
        Ok(id)
    }

    /// Whether an allocation is from a pool.
    pub fn is_of_pool(&self, id: u64) -> bool {
        self.allocations.get(&id).is_some_and(|allocation| allocation.pool != 0)
    }

    /// The free runs on the device.
    pub fn release(&mut self, id: u64) -> Result<(), String> {
        let Some(allocation) = self.allocations.remove(&id) else { return Ok(()) };
        let Allocation { base, size, span, live, taken_over, pool, charge, .. } = allocation;
        let damage = if live && !*NOOP { fence_damage(base + size, span - size) } else { None };
        if live {
            self.live.remove(&base);
            if !*NOOP {
                fill(base, FREED, span);
            }
        }
        match pool {
            _ if taken_over => {}
            0 | NO_POOL => {
                self.used_bytes -= charge;
                self.give_span(base, span);
            }
            pool => self.keep(base, Kept { pool, bytes: span, charge }),
        }
        GENERATION.fetch_add(1, Ordering::Release);
        match damage {
            _ if !live => Err("freed before its stream-ordered allocation, made on another stream".into()),
            Some(offset) => {
                Err(format!("{offset} bytes past the end of {size} bytes at {} were written", hex(base as u64)))
            }
            None => Ok(()),
        }
    }

    /// The allocation that contains the range, as the host sees it.
    pub fn find(&self, address: u64, bytes: usize) -> Result<u64, String> {
        if let Some((&base, id)) = self.usable.range(..=address as usize).next_back() {
            let Allocation { size, owner, .. } = self.allocations[id];
            let offset = address as usize - base;
            if offset < size && owner != self.owner {
                return Err(format!("{bytes} bytes at {} are not device memory of this context", hex(address)));
            }
            if offset < size && bytes <= size - offset {
                return Ok(*id);
            }
            if offset < size {
                return Err(format!(
                    "{bytes} bytes at {} run past the end of an allocation of {size} bytes at offset {offset}",
                    hex(address)
                ));
            }
        }
        Err(format!("{bytes} bytes at {} are not device memory{}", hex(address), self.history(address, bytes)))
    }

    /// Checks that the device has an allocation that `find` returned.
    pub fn require_live(&self, id: u64) -> Result<(), String> {
        match self.allocations.get(&id) {
            Some(allocation) if allocation.live => Ok(()),
            Some(_) => Err("used before its stream-ordered allocation, made on another stream".into()),
            None => Err("used after it was freed".into()),
        }
    }

    /// Base address and size of the allocation that contains an address.
    pub fn extent(&self, address: u64) -> Option<(u64, usize)> {
        let id = self.find(address, 1).ok()?;
        let allocation = self.allocations.get(&id)?;
        Some((allocation.base as u64, allocation.size))
    }

    fn history(&self, address: u64, bytes: usize) -> &'static str {
        let (start, end) = (address as usize, (address as usize).saturating_add(bytes));
        if self.freed.iter().any(|&(base, size)| start < base + size && base < end) { " (it was freed)" } else { "" }
    }

    pub fn allocate_host(&mut self, size: usize, flags: u32) -> Option<usize> {
        let layout = std::alloc::Layout::from_size_align(size, PAGE).ok()?;
        // SAFETY: the caller refuses a size of 0.
        let base = unsafe { std::alloc::alloc(layout) } as usize;
        if base == 0 {
            return None;
        }
        fill(base, FRESH, size);
        self.insert_host(base, size, flags, true);
        Some(base)
    }

    /// Registers host memory. Returns false if a part of it is registered already.
    pub fn register_host(&mut self, base: usize, size: usize, flags: u32) -> bool {
        let end = base.saturating_add(size);
        if self.host.range(..end).next_back().is_some_and(|(&other, block)| other + block.size > base) {
            return false;
        }
        self.insert_host(base, size, flags, false);
        true
    }

    fn insert_host(&mut self, base: usize, size: usize, flags: u32, owned: bool) {
        let id = self.next_id;
        self.next_id += 1;
        self.host.insert(base, HostBlock { size, id, flags, owned, owner: self.owner });
        GENERATION.fetch_add(1, Ordering::Release);
    }

    /// Removes the block that starts at `base` from the table, if it is of this kind.
    pub fn remove_host(&mut self, base: usize, owned: bool) -> bool {
        if self.host.get(&base).is_none_or(|block| block.owned != owned) {
            return false;
        }
        if let Some(block) = self.host.remove(&base)
            && owned
        {
            fill(base, FREED, block.size);
            self.quarantine.push((base, block.size));
        }
        GENERATION.fetch_add(1, Ordering::Release);
        true
    }

    /// Frees pinned memory once no queued operation can read it.
    pub fn drain_quarantine(&mut self) {
        for (base, size) in self.quarantine.drain(..) {
            if let Ok(layout) = std::alloc::Layout::from_size_align(size, PAGE) {
                // SAFETY: allocated in `allocate_host` with this layout, and out of the table since.
                unsafe { std::alloc::dealloc(base as *mut u8, layout) };
            }
        }
    }

    /// The pinned block that contains an address.
    pub fn host_block(&self, address: usize) -> Option<(usize, &HostBlock)> {
        let (&base, block) = self.host.range(..=address).next_back()?;
        (address - base < block.size).then_some((base, block))
    }

    /// The range that contains an address and that a kernel may access: live on the device, or pinned.
    pub fn reachable(&self, address: usize) -> Option<(usize, usize)> {
        if let Some((&base, id)) = self.live.range(..=address).next_back() {
            let Allocation { size, owner, .. } = self.allocations[id];
            if address - base < size && owner == self.owner {
                return Some((base, base + size));
            }
        }
        self.host_block(address).map(|(base, block)| (base, base + block.size))
    }

    /// A description of a range that a kernel may not access, by the nearest allocation on the device.
    fn place(&self, address: usize, bytes: usize) -> String {
        let size_of = |id: &u64| self.allocations.get(id).map_or(0, |allocation| allocation.size);
        let before = self.live.range(..=address).next_back().map(|(&base, id)| (base, size_of(id)));
        let after = self.live.range(address..).next().map(|(&base, id)| (base, size_of(id)));
        let past = before.map(|(base, size)| (address.saturating_add(bytes) - base).saturating_sub(size));
        let nearest = match (before, after) {
            (Some((base, size)), after) if after.is_none_or(|(next, _)| past <= Some(next - address)) => {
                let offset = address - base;
                format!("at offset {offset} of an allocation of {size} bytes at {base:#x}")
            }
            (_, Some((base, size))) => {
                format!("{} bytes before an allocation of {size} bytes at {base:#x}", base - address)
            }
            (_, None) => "with nothing allocated".into(),
        };
        format!("{address:#x}{}, {nearest}", self.history(address as u64, bytes))
    }
}

fn charge_of(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(ALIGN)
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// Overwrites an existing range with rubbish.
pub fn scribble(base: usize, bytes: usize) {
    fill(base, SCRIBBLE, bytes);
}

fn fill(base: usize, byte: u8, bytes: usize) {
    // SAFETY: callers pass ranges of the arena or of a host block, both writable. Nothing borrows from either: they
    // are only ever reached through raw pointers.
    unsafe { std::ptr::write_bytes(host(base) as *mut u8, byte, bytes) };
}

/// Distance from the end of an allocation to the last wrong byte of its fence, counted from 1.
fn fence_damage(base: usize, bytes: usize) -> Option<usize> {
    // SAFETY: a fence is inside the arena; a byte is copied out, no reference is made.
    (0..bytes).rev().find(|&i| unsafe { (host(base + i) as *const u8).read_volatile() } != FENCE).map(|i| i + 1)
}

thread_local! {
    /// The device that this thread works on, and the slot of the context.
    static PLACE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Generation, start and end of the range that this thread found last.
    static LAST: Cell<(u64, usize, usize)> = const { Cell::new((0, 0, 0)) };
}

/// Whether a kernel may access the range now. A failure is recorded, so that the kernel's launch reports it.
pub fn check(address: usize, bytes: usize) -> bool {
    if bytes == 0 {
        return true;
    }
    let generation = GENERATION.load(Ordering::Acquire);
    let (seen, mut start, mut end) = LAST.get();
    if seen != generation || address < start || address >= end {
        let range = memory().reachable(address);
        let Some(range) = range else {
            refuse(address, bytes, &format!("an access of {bytes} bytes"));
            return false;
        };
        (start, end) = range;
        LAST.set((generation, start, end));
    }
    let within = bytes <= end - address;
    if !within {
        refuse(address, bytes, &format!("an access of {bytes} bytes"));
    }
    within
}

/// Records a forbidden access, if it is the first.
pub fn refuse(address: usize, bytes: usize, what: &str) {
    let place = if bytes > 0 { format!(" at {}", memory().place(address, bytes)) } else { String::new() };
    refused().get_or_insert_with(|| format!("{what}{place}"));
}

/// The first failure of `check` since the last call of this function.
pub fn take_refusal() -> Option<String> {
    refused().take()
}

fn refused() -> MutexGuard<'static, Option<String>> {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

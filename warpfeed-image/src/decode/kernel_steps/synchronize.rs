//! Step 2: the places at which threads start. A decoder that starts anywhere in the data soon synchronizes with the
//! right codes. The method is Weißenberger and Schmidt's (arXiv 2111.09219).
//!
//! Each thread decodes its share from a guessed start of an MCU, and remembers the end. Then come rounds: a thread that
//! did not start where the one before it has ended decodes again from there. It remembers [`WAYS`] ways through its
//! share. When nothing changes any more, all starts are right, because each right start makes the next one right.
//!
//! A block of threads finds [`BLOCK_RUNS`] starts. Its first [`WARM_UP`] threads have shares of the block before, so
//! that its own first start is nearly always right. If not, the block works once more. An image with blocks that still
//! do not fit is flagged. The kernels also begin at restart markers.

use super::codes::Codes;
use super::unstuff::UnstuffedData;
use super::walk::WalkState;
use super::{Baseline, Reason};
use std::collections::VecDeque;
use std::ops::Range;

/// Number of bits of a thread's share.
const SHARE_BITS: usize = 640;

/// Number of starts that a block of threads finds, and number of threads before these.
const BLOCK_RUNS: usize = 224;
const WARM_UP: usize = 32;

/// Number of ways that a thread remembers.
const WAYS: usize = 4;

/// The part of the data that one thread decodes to coefficients.
pub struct ThreadRun {
    pub start: WalkState,
    /// The thread stops at the first symbol from here on.
    pub end_bit: usize,
    /// The end of the data. No symbol reaches beyond it.
    pub data_end_bit: usize,
    /// Number of the first block in the scan.
    pub block: usize,
    /// The thread stops at this block.
    pub end_block: usize,
}

/// The segments between restart markers that contain the blocks `checked`. The first segment begins with these blocks.
pub(super) fn at_restarts(image: &Baseline, scan: &UnstuffedData, checked: &Range<usize>) -> Vec<ThreadRun> {
    let blocks = image.restart_interval_mcus as usize * image.mcu_blocks();
    let runs = scan.bounds.windows(2).zip(checked.clone().step_by(blocks));
    runs.map(|(bounds, block)| ThreadRun {
        start: WalkState::at(8 * bounds[0]),
        end_bit: 8 * bounds[1],
        data_end_bit: 8 * bounds[1],
        block,
        end_block: (block + blocks).min(checked.end),
    })
    .collect()
}

/// A way through a share.
#[derive(Clone, Copy)]
struct Way {
    start: WalkState,
    /// The first state at or after the end.
    end: WalkState,
    /// Number of blocks that ended on the way.
    blocks: usize,
}

/// One thread's share of the data.
struct Share {
    end_bit: usize,
    way: Way,
    /// The last ways that were decoded.
    known: VecDeque<Way>,
}

impl Share {
    fn new(codes: &Codes<'_>, scan: &UnstuffedData, start: WalkState, end_bit: usize) -> Self {
        let mut share = Self { end_bit, way: Way { start, end: start, blocks: 0 }, known: VecDeque::new() };
        share.decode(codes, scan, start);
        share
    }

    fn decode(&mut self, codes: &Codes<'_>, scan: &UnstuffedData, start: WalkState) {
        self.way = Way { start, end: start, blocks: 0 };
        while self.way.end.bit < self.end_bit {
            self.way.blocks += usize::from(self.way.end.step(codes, scan).ends_block);
        }
        self.known.truncate(WAYS - 1);
        self.known.push_front(self.way);
    }
}

/// Finds the shares of a block of threads. `start` is the start of its first own share; if it is not known, the block
/// has [`WARM_UP`] shares more, which come before.
fn block(codes: &Codes<'_>, scan: &UnstuffedData, first: usize, start: Option<WalkState>) -> Vec<Share> {
    let data_end_bit = 8 * scan.bounds[1];
    let begin = if start.is_some() { first } else { first - WARM_UP };
    let mut shares: Vec<Share> = (SHARE_BITS * begin..data_end_bit.min(SHARE_BITS * (first + BLOCK_RUNS)))
        .step_by(SHARE_BITS)
        .map(|bit| {
            let known = start.filter(|_| bit == SHARE_BITS * first);
            Share::new(codes, scan, known.unwrap_or(WalkState::at(bit)), (bit + SHARE_BITS).min(data_end_bit))
        })
        .collect();
    loop {
        // The results of the last round; the threads work in parallel.
        let ends: Vec<WalkState> = shares.iter().map(|share| share.way.end).collect();
        let (mut moved, mut wrong) = (false, Vec::new());
        for (share, end) in shares.iter_mut().skip(1).zip(ends).filter(|(share, end)| share.way.start != *end) {
            match share.known.iter().find(|way| way.start == end) {
                Some(&way) => (share.way, moved) = (way, true),
                None => wrong.push((share, end)),
            }
        }
        if moved {
            continue;
        }
        if wrong.is_empty() {
            break;
        }
        wrong.into_iter().for_each(|(share, end)| share.decode(codes, scan, end));
    }
    shares.split_off(first - begin)
}

/// Finds the runs of a scan without restarts.
pub(super) fn synchronize(codes: &Codes<'_>, scan: &UnstuffedData, end_block: usize) -> Result<Vec<ThreadRun>, Reason> {
    let data_end_bit = 8 * scan.bounds[1];
    let firsts = (0..data_end_bit.div_ceil(SHARE_BITS)).step_by(BLOCK_RUNS);
    let known = |first| (first == 0).then(|| WalkState::at(0));
    let guessed: Vec<_> = firsts.clone().map(|first| block(codes, scan, first, known(first))).collect();
    let end_of = |shares: &Vec<Share>| shares[shares.len() - 1].way.end;
    let ends: Vec<WalkState> = guessed.iter().map(end_of).collect();
    let mut blocks = Vec::new();
    for ((at, first), shares) in firsts.enumerate().zip(guessed) {
        let is_right = at == 0 || shares[0].way.start == ends[at - 1];
        blocks.push(if is_right { shares } else { block(codes, scan, first, Some(ends[at - 1])) });
    }
    if blocks.windows(2).any(|pair| pair[1][0].way.start != end_of(&pair[0])) {
        return Err(Reason::Unsynchronized);
    }
    let mut block = 0;
    let run = |share: &Share| {
        let run = ThreadRun { start: share.way.start, end_bit: share.end_bit, data_end_bit, block, end_block };
        block += share.way.blocks;
        run
    };
    Ok(blocks.iter().flatten().map(run).collect())
}

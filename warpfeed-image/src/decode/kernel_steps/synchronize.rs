//! Step 2: the places at which threads start. It is unknown where in the data a code begins, but a decoder that starts
//! anywhere soon synchronizes with the right one.
//!
//! Each thread decodes its share from a guessed start of an MCU, and records its state every [`CHECK_BITS`]. Then come
//! rounds: a thread that did not start where the one before it has ended decodes again from there, until it meets a
//! state that it has recorded. When nothing changes any more, all starts are right, because the first start is right,
//! and each right start makes the next one right. This holds for damaged data too.
//!
//! A thread in the wrong block of the MCU usually soon finds more coefficients than a block has. If this happens within
//! [`TRIAL_BITS`], the thread begins again with the next block of the MCU as its guess.
//!
//! A block of threads finds [`BLOCK_RUNS`] starts. Its first [`WARM_UP`] threads have shares of the block before, so
//! that its own first start is nearly always right. If it is not, the block works once more, from the end of the block
//! before. An image with blocks that still do not fit is flagged.
//!
//! The kernels divide images with restart markers in the same way: a state at the start of a segment is known. Here,
//! each segment is a run, which gives the same coefficients.
//!
//! The method is Weißenberger and Schmidt's (arXiv 2111.09219).

use super::codes::Codes;
use super::unstuff::UnstuffedData;
use super::walk::WalkState;
use super::{Baseline, Reason};
use std::ops::Range;

/// Number of bits of a thread's share.
const SHARE_BITS: usize = 1024;

/// Number of starts that a block of threads finds, and number of threads before these.
const BLOCK_RUNS: usize = 240;
const WARM_UP: usize = 16;

/// Number of bits after which a thread records its state.
const CHECK_BITS: usize = 256;

/// Number of bits within which a thread may choose another guess.
const TRIAL_BITS: usize = 512;

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

/// One thread's share of the data.
struct Share {
    start: WalkState,
    first_bit: usize,
    end_bit: usize,
    /// The first state at or after each multiple of [`CHECK_BITS`], and the number of blocks that ended before it. The
    /// last state is at the end.
    checks: Vec<(WalkState, usize)>,
}

impl Share {
    /// Decodes from `start` until it meets a state that was recorded before.
    fn decode(&mut self, codes: &Codes<'_>, scan: &UnstuffedData, start: WalkState) {
        self.start = start;
        let (mut state, mut blocks) = (start, 0);
        for check in 0..self.checks.len() {
            let bit = (self.first_bit + CHECK_BITS * (check + 1)).min(self.end_bit);
            while state.bit < bit {
                blocks += usize::from(state.step(codes, scan).ends_block);
            }
            let (met, before) = self.checks[check];
            if met == state {
                // From here on, everything is as before, except the number of blocks.
                self.checks[check..].iter_mut().for_each(|noted| noted.1 = noted.1 + blocks - before);
                return;
            }
            self.checks[check] = (state, blocks);
        }
    }

    /// Decodes from a start of an MCU, or from another of its blocks if this is soon found to be wrong.
    fn guess(&mut self, codes: &Codes<'_>, scan: &UnstuffedData) {
        let blocks = codes.image.mcu_blocks();
        let mut starts = (0..blocks).map(|block| WalkState { block, ..WalkState::at(self.first_bit) });
        let is_wrong = |start: &WalkState| {
            let mut state = *start;
            while state.bit < self.end_bit {
                let is_beyond = state.step(codes, scan).is_beyond;
                if state.bit >= self.first_bit + TRIAL_BITS {
                    break;
                }
                if is_beyond {
                    return true;
                }
            }
            false
        };
        let start = starts.find(|start| !is_wrong(start));
        self.decode(codes, scan, start.unwrap_or(WalkState::at(self.first_bit)));
    }

    fn end(&self) -> (WalkState, usize) {
        self.checks[self.checks.len() - 1]
    }
}

/// Finds the shares of a block of threads. `start` is the start of its first own share; if it is not known, the block
/// has [`WARM_UP`] shares more, which come before.
fn block(codes: &Codes<'_>, scan: &UnstuffedData, first: usize, start: Option<WalkState>) -> Vec<Share> {
    let data_end_bit = 8 * scan.bounds[1];
    let begin = if start.is_some() { first } else { first - WARM_UP };
    let nowhere = (WalkState::at(usize::MAX), 0);
    let mut shares: Vec<Share> = (SHARE_BITS * begin..data_end_bit.min(SHARE_BITS * (first + BLOCK_RUNS)))
        .step_by(SHARE_BITS)
        .map(|bit| {
            let end_bit = (bit + SHARE_BITS).min(data_end_bit);
            let checks = vec![nowhere; (end_bit - bit).div_ceil(CHECK_BITS)];
            let mut share = Share { start: WalkState::at(bit), first_bit: bit, end_bit, checks };
            match start.filter(|_| bit == SHARE_BITS * first) {
                Some(start) => share.decode(codes, scan, start),
                None => share.guess(codes, scan),
            }
            share
        })
        .collect();
    loop {
        // The results of the last round; the threads work in parallel.
        let ends: Vec<WalkState> = shares.iter().map(|share| share.end().0).collect();
        let wrong = shares.iter_mut().skip(1).zip(ends).filter(|(share, end)| share.start != *end);
        if wrong.map(|(share, end)| share.decode(codes, scan, end)).count() == 0 {
            break;
        }
    }
    shares.split_off(first - begin)
}

/// Finds the runs of a scan without restarts.
pub(super) fn synchronize(codes: &Codes<'_>, scan: &UnstuffedData, end_block: usize) -> Result<Vec<ThreadRun>, Reason> {
    let data_end_bit = 8 * scan.bounds[1];
    let firsts = (0..data_end_bit.div_ceil(SHARE_BITS)).step_by(BLOCK_RUNS);
    let known = |first| (first == 0).then(|| WalkState::at(0));
    let guessed: Vec<_> = firsts.clone().map(|first| block(codes, scan, first, known(first))).collect();
    let end_of = |shares: &Vec<Share>| shares[shares.len() - 1].end().0;
    let ends: Vec<WalkState> = guessed.iter().map(end_of).collect();
    let mut blocks = Vec::new();
    for ((at, first), shares) in firsts.enumerate().zip(guessed) {
        let is_right = at == 0 || shares[0].start == ends[at - 1];
        blocks.push(if is_right { shares } else { block(codes, scan, first, Some(ends[at - 1])) });
    }
    if blocks.windows(2).any(|pair| pair[1][0].start != end_of(&pair[0])) {
        return Err(Reason::Unsynchronized);
    }
    let mut block = 0;
    let run = |share: &Share| {
        let run = ThreadRun { start: share.start, end_bit: share.end_bit, data_end_bit, block, end_block };
        block += share.end().1;
        run
    };
    Ok(blocks.iter().flatten().map(run).collect())
}

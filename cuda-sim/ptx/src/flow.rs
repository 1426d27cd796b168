//! The ways through a kernel: its basic blocks, and whether each register is written before it is read.

use crate::parse::Register;
use std::collections::HashMap;

/// Where a kernel goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    Following,
    Goto(String),
    End,
}

/// An instruction or label in C++.
#[derive(Debug)]
pub struct Step {
    pub line: usize,
    pub code: String,
    label: Option<String>,
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
    pub next: Next,
    /// Whether a predicate decides if it runs.
    pub guarded: bool,
    /// Whether it is a barrier.
    pub waits: bool,
}

impl Step {
    pub fn new() -> Self {
        let (reads, writes) = (Vec::new(), Vec::new());
        Self { line: 0, code: String::new(), label: None, reads, writes, next: Next::Following, guarded: false, waits: false }
    }

    pub fn label(name: &str) -> Self {
        Self { code: format!("{}:;", label(name)), label: Some(name.to_owned()), ..Self::new() }
    }
}

/// A label's name in C++.
pub fn label(name: &str) -> String {
    format!("to_{}", name.replace(['$', '%', '.'], "_"))
}

/// A set of registers, one bit each.
type Set = Vec<u64>;

/// Registers that nothing writes. Reading one stands for a value that does not matter, such as a vector's byte that is
/// never used.
pub fn unwritten(steps: &[Step], registers: &[Register]) -> Vec<usize> {
    let mut written = vec![false; registers.len()];
    steps.iter().flat_map(|step| &step.writes).for_each(|&register| written[register] = true);
    (0..registers.len()).filter(|&register| !written[register]).collect()
}

/// Finds labels that are missing, and a register that is read where it may not have been written; with the line. The
/// registers `given` have values from the start.
pub fn check(steps: &[Step], registers: &[Register], given: &[usize]) -> Result<(), (usize, String)> {
    let mut labels = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Some(label) = &step.label
            && labels.insert(label.as_str(), at).is_some()
        {
            return Err((step.line, format!("the label {label} is there twice")));
        }
    }
    // The registers written on every way to a step; none if no way has been found yet.
    let mut before: Vec<Option<Set>> = vec![None; steps.len() + 1];
    let mut start = vec![0; registers.len().div_ceil(64)];
    given.iter().for_each(|&register| start[register / 64] |= 1 << (register % 64));
    before[0] = Some(start);
    let mut waiting = vec![0];
    while let Some(mut at) = waiting.pop() {
        while at < steps.len() {
            let step = &steps[at];
            let Some(mut written) = before[at].clone() else { break };
            if !step.guarded {
                step.writes.iter().for_each(|&register| written[register / 64] |= 1 << (register % 64));
            }
            let mut reach = |to: usize| {
                let merged = match &before[to] {
                    None => written.clone(),
                    Some(known) => known.iter().zip(&written).map(|(a, b)| a & b).collect(),
                };
                let changed = before[to].as_ref() != Some(&merged);
                before[to] = Some(merged);
                changed
            };
            if let Next::Goto(label) = &step.next {
                let Some(&to) = labels.get(label.as_str()) else {
                    return Err((step.line, format!("there is no label {label}")));
                };
                if reach(to) {
                    waiting.push(to);
                }
            }
            if step.next != Next::Following && !step.guarded || !reach(at + 1) {
                break;
            }
            at += 1;
        }
    }
    if before[steps.len()].is_some() && !matches!(steps.last(), Some(Step { next: Next::End, guarded: false, .. })) {
        return Err((steps.last().map_or(0, |step| step.line), "the kernel does not end in ret".to_owned()));
    }
    for (step, written) in steps.iter().zip(&before) {
        let Some(written) = written else { continue };
        if let Some(&register) = step.reads.iter().find(|&&register| written[register / 64] >> (register % 64) & 1 == 0)
        {
            let name = &registers[register].name;
            return Err((step.line, format!("{name} is read, but not written on every way here")));
        }
    }
    Ok(())
}

/// The number of no basic block: the end of a kernel (`kEnd` in ways.cpp).
const END: u16 = u16::MAX;

/// The basic blocks of a kernel, numbered by their place. A barrier ends one.
#[derive(Debug)]
pub struct BasicBlocks {
    /// For each step, the basic block that begins before it. One that begins at a label begins after the label.
    pub begins: Vec<Option<u16>>,
    /// Numbers of instructions.
    pub lengths: Vec<u16>,
    /// For each basic block, the first one that lies on every way from it to the end; `END` if there is none.
    pub joins: Vec<u16>,
}

impl BasicBlocks {
    /// Divides a kernel in which `check` has found nothing.
    pub fn new(steps: &[Step]) -> Result<Self, String> {
        let (mut begins, mut lengths, mut labels) = (vec![None; steps.len()], Vec::<u16>::new(), HashMap::new());
        // The last step of each basic block.
        let mut lasts: Vec<usize> = Vec::new();
        let mut ended = true;
        for (at, step) in steps.iter().enumerate() {
            if let Some(label) = &step.label {
                labels.insert(label.as_str(), lengths.len() as u16);
                ended = true;
                continue;
            }
            if ended {
                begins[at] = Some(u16::try_from(lengths.len()).ok().filter(|&block| block < END).ok_or("it is too long")?);
                lengths.push(0);
                lasts.push(at);
            }
            let last = lengths.len() - 1;
            lengths[last] = lengths[last].checked_add(1).ok_or("it is too long")?;
            lasts[last] = at;
            ended = step.next != Next::Following || step.waits;
        }
        let count = lengths.len();
        // The end is number `count`.
        let following = |block: usize| {
            let step = &steps[lasts[block]];
            let to = match &step.next {
                Next::Following => None,
                Next::Goto(label) => labels.get(label.as_str()).map(|&to| usize::from(to)),
                Next::End => Some(count),
            };
            let next = (to.is_none() || step.guarded).then_some((block + 1).min(count));
            to.into_iter().chain(next)
        };
        // For each basic block, those that lie on every way from it to the end, itself included.
        let words = (count + 1).div_ceil(64);
        let mut later: Vec<Set> = vec![vec![u64::MAX; words]; count + 1];
        later[count] = vec![0; words];
        later[count][count / 64] = 1 << (count % 64);
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..count).rev() {
                let mut all = vec![u64::MAX; words];
                for to in following(block) {
                    all.iter_mut().zip(&later[to]).for_each(|(all, later)| *all &= later);
                }
                all[block / 64] |= 1 << (block % 64);
                changed |= all != later[block];
                later[block] = all;
            }
        }
        let number = |set: &Set| set.iter().map(|word| word.count_ones()).sum::<u32>();
        // The nearest has all the others behind it.
        let join = |block: usize| {
            let wanted = number(&later[block]) - 1;
            let is_it = |&other: &usize| {
                other != block && later[block][other / 64] >> (other % 64) & 1 == 1 && number(&later[other]) == wanted
            };
            (0..count).find(is_it).map_or(END, |join| join as u16)
        };
        let joins = (0..count).map(join).collect();
        Ok(Self { begins, lengths, joins })
    }
}

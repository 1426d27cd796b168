//! Whether each register is written before it is read, on every way through a kernel.

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
}

impl Step {
    pub fn new() -> Self {
        let (reads, writes) = (Vec::new(), Vec::new());
        Self { line: 0, code: String::new(), label: None, reads, writes, next: Next::Following, guarded: false }
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

//! The text of PTX as kernels with registers, variables and instructions.

use crate::{Error, Result};
use std::collections::HashMap;

/// A fundamental type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    pub class: Class,
    /// Number of bits; 1 for predicates.
    pub bits: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Signed,
    Unsigned,
    Untyped,
    Float,
    Predicate,
}

impl Type {
    /// A type by its name without the dot. Of floats, only f32 and f64 are known.
    pub fn named(name: &str) -> Option<Self> {
        if name == "pred" {
            return Some(Self { class: Class::Predicate, bits: 1 });
        }
        let class = match name.chars().next()? {
            's' => Class::Signed,
            'u' => Class::Unsigned,
            'b' => Class::Untyped,
            'f' => Class::Float,
            _ => return None,
        };
        let bits = name[1..].parse().ok()?;
        let known: &[u32] = if class == Class::Float { &[32, 64] } else { &[8, 16, 32, 64] };
        known.contains(&bits).then_some(Self { class, bits })
    }

    pub fn is_integer(self) -> bool {
        matches!(self.class, Class::Signed | Class::Unsigned)
    }

    pub fn bytes(self) -> usize {
        self.bits.div_ceil(8) as usize
    }
}

pub struct Module {
    /// Variables in shared memory of all kernels.
    pub shared: Vec<Variable>,
    pub entries: Vec<Entry>,
}

#[derive(Clone)]
pub struct Variable {
    pub name: String,
    pub align: usize,
    pub bytes: usize,
}

pub struct Entry {
    pub name: String,
    pub parameters: Vec<Variable>,
    /// Largest number of threads in a block.
    pub most_threads: u32,
    pub registers: Vec<Register>,
    pub shared: Vec<Variable>,
    pub body: Vec<Statement>,
    /// The line of its name.
    pub start: usize,
    /// The line of its end.
    pub end: usize,
}

pub struct Register {
    /// A name for C++, unique in the kernel.
    pub name: String,
    pub of: Type,
}

pub enum Statement {
    Label(String),
    Instruction(Instruction),
}

pub struct Instruction {
    pub line: usize,
    /// The predicate on which it depends, and whether it must be false.
    pub guard: Option<(usize, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
    /// The bytes of a load that are used, one bit each.
    pub used: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// By its index.
    Register(usize),
    /// A predicate that is negated.
    Not(usize),
    Integer(u64),
    F32(u32),
    F64(u64),
    /// A special register, label or variable.
    Name(String),
    /// An unused result.
    Nothing,
    Vector(Vec<Operand>),
    Address(Box<Operand>, i64),
}

/// The parts of a text: a word with its dots, a quoted string, or one other character.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Mark(char),
    End,
}

struct Tokens<'a> {
    all: Vec<(Token<'a>, usize)>,
    at: usize,
}

fn tokens(text: &str) -> Result<Vec<(Token<'_>, usize)>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
        let length = if first.is_whitespace() {
            line += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        } else if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            continue;
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").ok_or_else(|| Error::at(line, "a comment does not end"))? + 2;
            line += rest[..length].matches('\n').count();
            rest = &rest[length..];
            continue;
        } else if first == '"' {
            let length = rest[1..].find('"').ok_or_else(|| Error::at(line, "a string does not end"))? + 2;
            found.push((Token::Text(&rest[1..length - 1]), line));
            length
        } else if is_of_word(first) {
            let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
            found.push((Token::Word(&rest[..length]), line));
            length
        } else {
            found.push((Token::Mark(first), line));
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found.push((Token::End, line));
    Ok(found)
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        self.all[self.at].0
    }

    fn line(&self) -> usize {
        self.all[self.at].1
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.all.len() - 1);
        token
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::at(self.line(), what))
    }

    /// Takes a mark if it is next.
    fn takes(&mut self, mark: char) -> bool {
        let found = self.peek() == Token::Mark(mark);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<()> {
        if self.takes(mark) { Ok(()) } else { self.error(format!("{mark:?} is expected, not {:?}", self.peek())) }
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            other => self.error(format!("a word is expected, not {other:?}")),
        }
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Token::Word(word);
        self.at += usize::from(found);
        found
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let word = self.word()?;
        let value = integer(word).and_then(|value| value.try_into().ok());
        value.map_or_else(|| self.error(format!("{word} is no number that fits here")), Ok)
    }

    /// `.align A .TYPE NAME[COUNT]`, where alignment and count may be missing.
    fn variable(&mut self) -> Result<Variable> {
        let align = if self.takes_word(".align") { Some(self.number()?) } else { None };
        let word = self.word()?;
        let Some(of) = word.strip_prefix('.').and_then(Type::named) else {
            return self.error(format!("{word} is no known type of a variable"));
        };
        let name = self.word()?.to_owned();
        let mut bytes = of.bytes();
        while self.takes('[') {
            let count: usize = self.number()?;
            bytes = bytes.saturating_mul(count);
            self.expect(']')?;
        }
        let align = align.unwrap_or(of.bytes());
        if !align.is_power_of_two() || bytes == 0 {
            return self.error(format!("the variable {name} has no size, or an alignment that is no power of two"));
        }
        Ok(Variable { name, align, bytes })
    }
}

fn integer(word: &str) -> Option<u64> {
    let word = word.strip_suffix('U').unwrap_or(word);
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if word.len() > 1 && word.starts_with('0') => None,
        None => word.parse().ok(),
    }
}

/// Parses a module.
pub fn module(text: &str) -> Result<Module> {
    let mut tokens = Tokens { all: tokens(text)?, at: 0 };
    let mut module = Module { shared: Vec::new(), entries: Vec::new() };
    loop {
        match tokens.peek() {
            Token::End => return Ok(module),
            Token::Word(".version" | ".address_size") => {
                tokens.next();
                tokens.word()?;
            }
            Token::Word(".target") => {
                tokens.next();
                tokens.word()?;
                while tokens.takes(',') {
                    tokens.word()?;
                }
            }
            Token::Word(".shared") => {
                tokens.next();
                module.shared.push(tokens.variable()?);
                tokens.expect(';')?;
            }
            Token::Word(".visible") => {
                tokens.next();
            }
            Token::Word(".entry") => {
                tokens.next();
                let entry = entry(&mut tokens)?;
                if module.entries.iter().any(|other| other.name == entry.name) {
                    return tokens.error(format!("there are two kernels {}", entry.name));
                }
                module.entries.push(entry);
            }
            other => return tokens.error(format!("{other:?} is not known outside of kernels")),
        }
    }
}

fn entry(tokens: &mut Tokens<'_>) -> Result<Entry> {
    let start = tokens.line();
    let name = tokens.word()?.to_owned();
    let of_kernel = |error: Error| Error { kernel: Some(name.clone()), ..error };
    let mut entry = Entry {
        name: name.clone(),
        parameters: Vec::new(),
        most_threads: 1024,
        registers: Vec::new(),
        shared: Vec::new(),
        body: Vec::new(),
        start,
        end: 0,
    };
    head(tokens, &mut entry).and_then(|()| body(tokens, &mut entry)).map_err(of_kernel)?;
    Ok(entry)
}

/// Parameters and directives.
fn head(tokens: &mut Tokens<'_>, entry: &mut Entry) -> Result<()> {
    if tokens.takes('(') {
        while !tokens.takes(')') {
            if !tokens.takes_word(".param") {
                return tokens.error(format!(".param is expected, not {:?}", tokens.peek()));
            }
            entry.parameters.push(tokens.variable()?);
            tokens.takes(',');
        }
    }
    while !tokens.takes('{') {
        match tokens.word()? {
            ".maxntid" => {
                let mut threads: u32 = tokens.number()?;
                while tokens.takes(',') {
                    threads = threads.saturating_mul(tokens.number()?);
                }
                entry.most_threads = threads.min(1024);
            }
            // It is about registers.
            ".minnctapersm" => {
                tokens.number::<u32>()?;
            }
            other => return tokens.error(format!("the directive {other} is not known")),
        }
    }
    Ok(())
}

/// A kernel's registers by their names in PTX; the last scope is the innermost.
struct Scopes(Vec<HashMap<String, usize>>);

impl Scopes {
    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().rev().find_map(|scope| scope.get(name).copied())
    }
}

fn body(tokens: &mut Tokens<'_>, entry: &mut Entry) -> Result<()> {
    let mut scopes = Scopes(vec![HashMap::new()]);
    let mut used = u32::MAX;
    loop {
        let line = tokens.line();
        match tokens.peek() {
            Token::Mark('}') => {
                entry.end = line;
                tokens.next();
                scopes.0.pop();
                if scopes.0.is_empty() {
                    return Ok(());
                }
            }
            Token::Mark('{') => {
                tokens.next();
                scopes.0.push(HashMap::new());
            }
            Token::Word(".reg") => {
                tokens.next();
                registers(tokens, entry, &mut scopes)?;
            }
            Token::Word(".shared") => {
                tokens.next();
                entry.shared.push(tokens.variable()?);
                tokens.expect(';')?;
            }
            Token::Word(".pragma") => {
                tokens.next();
                let Token::Text(text) = tokens.next() else { return tokens.error("a pragma is a string") };
                if let Some(mask) = text.strip_prefix("used_bytes_mask ") {
                    let mask = integer(mask.trim()).and_then(|mask| u32::try_from(mask).ok());
                    used = mask.map_or_else(|| tokens.error(format!("the pragma {text} is not known")), Ok)?;
                } else if text != "nounroll" {
                    return tokens.error(format!("the pragma {text} is not known"));
                }
                tokens.expect(';')?;
            }
            Token::Word(word) if tokens.all[tokens.at + 1].0 == Token::Mark(':') => {
                tokens.next();
                tokens.next();
                entry.body.push(Statement::Label(word.to_owned()));
            }
            Token::Word(word) if word.starts_with('.') => {
                return tokens.error(format!("the directive {word} is not known"));
            }
            _ => {
                let instruction = instruction(tokens, &scopes, std::mem::replace(&mut used, u32::MAX))?;
                entry.body.push(Statement::Instruction(instruction));
            }
        }
    }
}

/// `.TYPE NAME, NAME<COUNT>, ...;`
fn registers(tokens: &mut Tokens<'_>, entry: &mut Entry, scopes: &mut Scopes) -> Result<()> {
    let word = tokens.word()?;
    let Some(of) = word.strip_prefix('.').and_then(Type::named) else {
        return tokens.error(format!("registers of the type {word} are not known"));
    };
    loop {
        let name = tokens.word()?;
        let names = if tokens.takes('<') {
            let count: usize = tokens.number()?;
            tokens.expect('>')?;
            (0..count).map(|i| format!("{name}{i}")).collect()
        } else {
            vec![name.to_owned()]
        };
        for name in names {
            let index = entry.registers.len();
            let in_cpp = match scopes.0.len() {
                1 => format!("v_{}", name.trim_start_matches('%')),
                _ => format!("v{index}_{}", name.trim_start_matches('%')),
            };
            entry.registers.push(Register { name: in_cpp.replace(['$', '%', '.'], "_"), of });
            if let Some(scope) = scopes.0.last_mut() {
                scope.insert(name, index);
            }
        }
        if !tokens.takes(',') {
            return tokens.expect(';');
        }
    }
}

fn instruction(tokens: &mut Tokens<'_>, scopes: &Scopes, used: u32) -> Result<Instruction> {
    let line = tokens.line();
    let guard = if tokens.takes('@') {
        let negated = tokens.takes('!');
        let name = tokens.word()?;
        let register = scopes.find(name);
        Some((register.map_or_else(|| tokens.error(format!("there is no register {name}")), Ok)?, negated))
    } else {
        None
    };
    let opcode = tokens.word()?.to_owned();
    let mut operands = Vec::new();
    while !tokens.takes(';') {
        if !operands.is_empty() {
            tokens.expect(',')?;
        }
        operands.push(operand(tokens, scopes)?);
    }
    Ok(Instruction { line, guard, opcode, operands, used })
}

fn operand(tokens: &mut Tokens<'_>, scopes: &Scopes) -> Result<Operand> {
    if tokens.takes('{') {
        let mut parts = Vec::new();
        while !tokens.takes('}') {
            parts.push(operand(tokens, scopes)?);
            tokens.takes(',');
        }
        return Ok(Operand::Vector(parts));
    }
    if tokens.takes('[') {
        let base = operand(tokens, scopes)?;
        let offset = if tokens.takes('+') {
            match operand(tokens, scopes)? {
                Operand::Integer(offset) => offset as i64,
                other => return tokens.error(format!("{other:?} is no offset")),
            }
        } else {
            0
        };
        tokens.expect(']')?;
        return Ok(Operand::Address(Box::new(base), offset));
    }
    if tokens.takes('!') {
        return match operand(tokens, scopes)? {
            Operand::Register(register) => Ok(Operand::Not(register)),
            other => tokens.error(format!("{other:?} is no predicate")),
        };
    }
    let negative = tokens.takes('-');
    let word = tokens.word()?;
    let bits = |prefix: &str, digits: usize| {
        let text = word.strip_prefix(prefix).filter(|text| text.len() == digits);
        text.and_then(|text| u64::from_str_radix(text, 16).ok())
    };
    Ok(if let Some(value) = integer(word) {
        Operand::Integer(if negative { value.wrapping_neg() } else { value })
    } else if negative {
        return tokens.error(format!("{word} is no number"));
    } else if let Some(value) = bits("0f", 8).or(bits("0F", 8)) {
        Operand::F32(value as u32)
    } else if let Some(value) = bits("0d", 16).or(bits("0D", 16)) {
        Operand::F64(value)
    } else if word == "_" {
        Operand::Nothing
    } else if let Some(register) = scopes.find(word) {
        Operand::Register(register)
    } else {
        Operand::Name(word.to_owned())
    })
}

//! Kernels as C++ functions; each instruction calls a function of `../cpp/ptx.h`.

use crate::flow::{self, BasicBlocks, Next, Step};
use crate::parse::{Class, Entry, Instruction, Module, Operand, Register, Statement, Type, Variable};
use crate::{Error, Result};
use std::fmt::Write as _;

/// The first address in shared memory (`kFirst` in ptx.cpp).
const FIRST_SHARED: usize = 1024;
/// Distance between variables in shared memory, in which no access is allowed.
const GAP: usize = 64;
/// The most static shared memory of a kernel.
const MOST_SHARED: usize = 48 << 10;
/// The most bytes of parameters on all devices.
const MOST_PARAMETERS: usize = 4096;

/// An operand or a form of an instruction that is refused, as a text.
type Found<T> = std::result::Result<T, String>;

/// A variable's or parameter's place in its memory.
pub struct Place {
    pub name: String,
    pub offset: usize,
    pub bytes: usize,
}

/// Places for a kernel's parameters, as CUDA lays them out.
pub fn parameters(entry: &Entry) -> Result<Vec<Place>> {
    places(entry, entry.parameters.iter(), 0, 0, MOST_PARAMETERS, "parameters")
}

/// Places for the variables in shared memory that a kernel names.
pub fn shared(module: &Module, entry: &Entry) -> Result<Vec<Place>> {
    let named = |variable: &&Variable| {
        let is_it = |operand: &Operand| matches!(operand, Operand::Name(name) if *name == variable.name);
        entry.body.iter().any(|statement| match statement {
            Statement::Instruction(instruction) => instruction.operands.iter().any(|operand| match operand {
                Operand::Address(base, _) => is_it(base),
                other => is_it(other),
            }),
            Statement::Label(_) => false,
        })
    };
    let variables = module.shared.iter().chain(&entry.shared).filter(named);
    places(entry, variables, FIRST_SHARED, GAP, MOST_SHARED, "static shared memory")
}

fn places<'a>(
    entry: &Entry,
    variables: impl Iterator<Item = &'a Variable>,
    first: usize,
    gap: usize,
    most: usize,
    what: &str,
) -> Result<Vec<Place>> {
    let (mut found, mut packed, mut end) = (Vec::new(), 0usize, first);
    for variable in variables {
        packed = packed.next_multiple_of(variable.align).saturating_add(variable.bytes);
        if packed > most {
            let what = format!("more than {most} bytes of {what}");
            return Err(Error { kernel: Some(entry.name.clone()), line: entry.end, what });
        }
        let offset = end.next_multiple_of(variable.align);
        found.push(Place { name: variable.name.clone(), offset, bytes: variable.bytes });
        end = offset + variable.bytes + gap;
    }
    Ok(found)
}

/// Whether a kernel has a barrier.
pub fn waits(entry: &Entry) -> bool {
    let is_barrier = |statement: &Statement| matches!(statement, Statement::Instruction(i) if i.opcode == "bar.sync");
    entry.body.iter().any(is_barrier)
}

/// The name of a kernel's function in C++.
pub fn function(kernel: &str) -> String {
    format!("ptx_{kernel}")
}

/// A translated kernel.
pub struct Kernel {
    /// The source file.
    pub text: String,
    pub blocks: BasicBlocks,
}

/// Translates a kernel.
pub fn kernel(module: &Module, entry: &Entry) -> Result<Kernel> {
    let of_kernel = |line, what| Error { kernel: Some(entry.name.clone()), line, what };
    let (parameters, shared) = (parameters(entry)?, shared(module, entry)?);
    let mut steps = Vec::new();
    for statement in &entry.body {
        match statement {
            Statement::Label(label) => steps.push(Step::label(label)),
            Statement::Instruction(instruction) => {
                let mut translation =
                    Translation { entry, parameters: &parameters, shared: &shared, step: Step::new() };
                let translated = translation.instruction(instruction);
                let line = instruction.line;
                translated.map_err(|what| of_kernel(line, format!("{}: {what}", instruction.opcode)))?;
                let mut step = translation.step;
                step.line = line;
                step.waits = instruction.opcode == "bar.sync";
                if let Some((guard, negated)) = instruction.guard {
                    let condition = format!("{}{}", if negated { "!" } else { "" }, entry.registers[guard].name);
                    if entry.registers[guard].of.class != Class::Predicate {
                        return Err(of_kernel(line, "the guard is no predicate".to_owned()));
                    }
                    step.code = format!("if ({condition}) {{ {} }}", step.code);
                    step.reads.push(guard);
                    step.guarded = true;
                }
                steps.push(step);
            }
        }
    }
    let unwritten = flow::unwritten(&steps, &entry.registers);
    flow::check(&steps, &entry.registers, &unwritten).map_err(|(line, what)| of_kernel(line, what))?;
    let mut text = String::from("#include \"ptx.h\"\n\n");
    let mut write = |line: &str| writeln!(text, "{line}").expect("strings take everything");
    write(&format!("extern \"C\" void {}(const void* parameters) {{", function(&entry.name)));
    write("    using namespace ptx;\n    static_cast<void>(parameters);");
    for register in &entry.registers {
        write(&format!("    {} {};", register_type(register), register.name));
    }
    for register in unwritten.into_iter().map(|register| &entry.registers[register]) {
        write(&format!("    {} = as<{}>(rubbish());", register.name, register_type(register)));
    }
    let blocks = BasicBlocks::new(&steps).map_err(|what| of_kernel(entry.end, what))?;
    for (step, begins) in steps.iter().zip(&blocks.begins) {
        if let Some(block) = begins {
            write(&format!("    {{ basic_block({block}); }}"));
        }
        write(&step.code);
    }
    write("}");
    Ok(Kernel { text, blocks })
}

fn register_type(register: &Register) -> &'static str {
    match register.of.bits {
        1 => "bool",
        8 => "uint8_t",
        16 => "uint16_t",
        32 => "uint32_t",
        _ => "uint64_t",
    }
}

/// The type of C++ for values of a type.
fn cpp(of: Type) -> &'static str {
    match (of.class, of.bits) {
        (Class::Predicate, _) => "bool",
        (Class::Float, 32) => "float",
        (Class::Float, _) => "double",
        (Class::Signed, 8) => "int8_t",
        (Class::Signed, 16) => "int16_t",
        (Class::Signed, 32) => "int32_t",
        (Class::Signed, _) => "int64_t",
        (_, 8) => "uint8_t",
        (_, 16) => "uint16_t",
        (_, 32) => "uint32_t",
        (_, _) => "uint64_t",
    }
}

const U32: Type = Type { class: Class::Unsigned, bits: 32 };
const U64: Type = Type { class: Class::Unsigned, bits: 64 };
const PREDICATE: Type = Type { class: Class::Predicate, bits: 1 };

const UNKNOWN: &str = "this form of the instruction is not known";

/// Whether a register may be wider than the instruction's type, as in loads, stores and conversions.
#[derive(Clone, Copy, PartialEq)]
enum Width {
    Equal,
    Wider,
}

/// One instruction on its way to C++.
struct Translation<'a> {
    entry: &'a Entry,
    parameters: &'a [Place],
    shared: &'a [Place],
    step: Step,
}

/// An instruction, taken apart.
struct Opcode<'i> {
    parts: Vec<&'i str>,
    operands: &'i [Operand],
    /// The type that the opcode ends with.
    of: Option<Type>,
    /// The type, if it is an integer type that instructions compute with.
    integer: Option<Type>,
    float: Option<Type>,
    untyped: Option<Type>,
    /// The instruction's place as text for the program: a kernel's text is the same wherever in the PTX it begins.
    place: String,
    used: u32,
}

impl<'i> Opcode<'i> {
    fn new(entry: &Entry, instruction: &'i Instruction) -> Self {
        let parts: Vec<&str> = instruction.opcode.split('.').collect();
        let of = parts.last().and_then(|name| Type::named(name));
        Self {
            parts,
            operands: &instruction.operands,
            of,
            integer: of.filter(|of| of.is_integer() && of.bits > 8),
            float: of.filter(|of| of.class == Class::Float),
            untyped: of.filter(|of| of.class == Class::Untyped && of.bits > 8),
            place: format!("\"{}, {}\"", instruction.line - entry.start, instruction.opcode),
            used: instruction.used,
        }
    }

    /// The parts but the type at the end, and the operands.
    fn arms(&self) -> (&[&'i str], &'i [Operand]) {
        (&self.parts[..self.parts.len().max(2) - 1], self.operands)
    }
}

impl Translation<'_> {
    /// The index of a register that may hold values of a type.
    fn fit(&self, register: usize, of: Type, width: Width) -> Found<()> {
        let has = self.entry.registers[register].of;
        let size = has.bits == of.bits || width == Width::Wider && has.bits > of.bits;
        // Untyped registers and instructions take everything of their size, integers each other.
        let class = match (has.class, of.class) {
            (Class::Predicate, other) | (other, Class::Predicate) => other == Class::Predicate,
            (Class::Untyped, _) | (_, Class::Untyped) => true,
            (Class::Float, other) | (other, Class::Float) => other == Class::Float,
            _ => true,
        };
        if size && class { Ok(()) } else { Err(format!("{} has another type", self.entry.registers[register].name)) }
    }

    /// An operand's value as an expression.
    fn value(&mut self, operand: &Operand, of: Type, width: Width) -> Found<String> {
        let to = cpp(of);
        match operand {
            Operand::Register(register) => {
                self.fit(*register, of, width)?;
                self.step.reads.push(*register);
                Ok(format!("as<{to}>({})", self.entry.registers[*register].name))
            }
            Operand::Not(register) if of == PREDICATE => {
                self.fit(*register, of, width)?;
                self.step.reads.push(*register);
                Ok(format!("!{}", self.entry.registers[*register].name))
            }
            Operand::Integer(value) if of.class != Class::Float => Ok(format!("as<{to}>(uint64_t{{{value}u}})")),
            Operand::F32(bits) if of.bits == 32 && matches!(of.class, Class::Float | Class::Untyped) => {
                Ok(format!("as<{to}>({bits}u)"))
            }
            Operand::F64(bits) if of.bits == 64 && matches!(of.class, Class::Float | Class::Untyped) => {
                Ok(format!("as<{to}>(uint64_t{{{bits}u}})"))
            }
            Operand::Name(name) if of.class != Class::Float => match self.name(name) {
                Some((value, bits)) if bits == of.bits || bits == 0 => Ok(format!("static_cast<{to}>({value})")),
                Some(_) => Err(format!("{name} has another size")),
                None => Err(format!("{name} is not known")),
            },
            other => Err(format!("{other:?} does not fit the instruction")),
        }
    }

    /// A special register, or the address of a variable in shared memory; and its bits, 0 if both sizes will do.
    fn name(&self, name: &str) -> Option<(String, u32)> {
        if let Some(place) = self.shared.iter().find(|place| place.name == name) {
            return Some((format!("{}u", place.offset), 0));
        }
        if name == "%globaltimer" {
            return Some(("cuda_sim::clock_ns()".to_owned(), 64));
        }
        let (register, axis) = name.split_once('.')?;
        let known = match register {
            "%tid" => "thread",
            "%ntid" => "block_size",
            "%ctaid" => "block",
            "%nctaid" => "grid_size",
            _ => return None,
        };
        matches!(axis, "x" | "y" | "z").then(|| (format!("cuda_sim::here.{known}.{axis}"), 32))
    }

    /// Code that writes an expression of a type to an operand.
    fn assign(&mut self, operand: &Operand, of: Type, width: Width, expression: &str) -> Found<String> {
        match operand {
            Operand::Nothing => Ok(format!("static_cast<void>({expression});")),
            Operand::Register(register) => {
                self.fit(*register, of, width)?;
                self.step.writes.push(*register);
                let register = &self.entry.registers[*register];
                Ok(format!("{} = bits<{}>({expression});", register.name, register_type(register)))
            }
            other => Err(format!("{other:?} cannot be written")),
        }
    }

    /// An instruction that is a call with operands of one type and gives a value of another.
    fn call(&mut self, operands: &[Operand], function: &str, takes: &[Type], gives: Type, more: &str) -> Found<()> {
        let [result, arguments @ ..] = operands else { return Err("operands are missing".to_owned()) };
        if arguments.len() != takes.len() {
            return Err(format!("{} operands are expected", takes.len() + 1));
        }
        let mut values = Vec::new();
        for (argument, &of) in arguments.iter().zip(takes) {
            values.push(self.value(argument, of, Width::Equal)?);
        }
        self.step.code =
            self.assign(result, gives, Width::Equal, &format!("{function}({}{more})", values.join(", ")))?;
        Ok(())
    }

    /// Translates an instruction.
    fn instruction(&mut self, instruction: &Instruction) -> Found<()> {
        let opcode = &Opcode::new(self.entry, instruction);
        let is_known = self.control(opcode)?
            || self.arithmetic(opcode)?
            || self.bits(opcode)?
            || self.selection(opcode)?
            || self.memory(opcode)?;
        if is_known { Ok(()) } else { Err(UNKNOWN.to_owned()) }
    }

    /// Translates an instruction that goes elsewhere, ends or waits. Returns false if it is another one.
    fn control(&mut self, opcode: &Opcode<'_>) -> Found<bool> {
        let Opcode { parts, operands, of, place, .. } = opcode;
        match opcode.arms() {
            _ if parts[..] == ["bra"] || parts[..] == ["bra", "uni"] => {
                let [Operand::Name(label)] = operands else { return Err("a label is expected".to_owned()) };
                self.step.next = Next::Goto(label.clone());
                self.step.code = format!("goto {};", flow::label(label));
            }
            _ if parts[..] == ["ret"] || parts[..] == ["exit"] => {
                self.step.next = Next::End;
                self.step.code = "return;".to_owned();
            }
            _ if parts[..] == ["bar", "sync"] => match operands {
                [Operand::Integer(0)] => self.step.code = format!("cuda_sim::synchronize({place});"),
                _ => return Err(UNKNOWN.to_owned()),
            },
            (["nanosleep"], [ns]) if *of == Some(U32) => {
                self.step.code = format!("cuda_sim::sleep_ns({});", self.value(ns, U32, Width::Equal)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Translates an instruction that computes with numbers. Returns false if it is another one.
    fn arithmetic(&mut self, opcode: &Opcode<'_>) -> Found<bool> {
        let &Opcode { operands, of, integer, float, ref place, .. } = opcode;
        match opcode.arms() {
            ([name @ ("add" | "sub")], _) if integer.is_some() => self.same(operands, name, of, 2, "")?,
            ([name @ ("add" | "sub" | "mul"), "rn"], _) if float.is_some() => self.same(operands, name, of, 2, "")?,
            (["div", "rn"], _) if float.is_some() => self.same(operands, "div", of, 2, &format!(", {place}"))?,
            ([name @ ("div" | "rem")], _) if integer.is_some() => {
                self.same(operands, name, of, 2, &format!(", {place}"))?
            }
            (["mul", "lo"], _) if integer.is_some() => self.same(operands, "mul", of, 2, "")?,
            (["mul", "hi"], _) if integer.is_some() => self.same(operands, "mul_hi", of, 2, "")?,
            ([name @ ("mul" | "mad"), "wide"], _) if integer.is_some_and(|of| of.bits < 64) => {
                let of = integer.ok_or(UNKNOWN)?;
                let wide = |of: Type| Type { bits: 2 * of.bits, ..of };
                let function = format!("mul_wide<{}>", cpp(wide(of)));
                match *name {
                    "mul" => self.call(operands, &function, &[of, of], wide(of), "")?,
                    _ => self.multiply_add(operands, &function, of, wide(of))?,
                }
            }
            (["mad", half @ ("lo" | "hi")], _) => {
                let of = integer.ok_or(UNKNOWN)?;
                self.multiply_add(operands, if *half == "lo" { "mul" } else { "mul_hi" }, of, of)?;
            }
            (["fma", "rn"], _) if float.is_some() => self.same(operands, "fma", of, 3, "")?,
            (["sqrt", "rn"], _) if float.is_some() => self.same(operands, "sqrt", of, 1, "")?,
            ([name @ ("neg" | "abs")], _) if float.is_some() || integer.is_some_and(|of| of.class == Class::Signed) => {
                self.same(operands, name, of, 1, "")?;
            }
            ([name @ ("min" | "max")], _) if float.is_some() || integer.is_some() => {
                self.same(operands, name, of, 2, "")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Translates an instruction that computes with bits. Returns false if it is another one.
    fn bits(&mut self, opcode: &Opcode<'_>) -> Found<bool> {
        let &Opcode { ref parts, operands, of, integer, untyped, .. } = opcode;
        match opcode.arms() {
            ([name @ ("and" | "or" | "xor" | "not")], _) if untyped.is_some() || of == Some(PREDICATE) => {
                self.logic(operands, name, of.ok_or(UNKNOWN)?)?;
            }
            (["shl"], _) if untyped.is_some() => self.shift(operands, "shl", of)?,
            (["shr"], _) if untyped.is_some() || integer.is_some() => self.shift(operands, "shr", of)?,
            (["shf", side @ ("l" | "r"), mode @ ("wrap" | "clamp")], [_, _, _, _])
                if untyped.is_some_and(|of| of.bits == 32) =>
            {
                let [result, low, high, by] = operands else { return Err(UNKNOWN.to_owned()) };
                let (low, high) = (self.value(low, U32, Width::Equal)?, self.value(high, U32, Width::Equal)?);
                let by = self.value(by, U32, Width::Equal)?;
                let by = if *mode == "wrap" { format!("({by} & 31)") } else { format!("min({by}, 32u)") };
                let expression = format!("shf_{side}({low}, {high}, {by})");
                self.step.code = self.assign(result, U32, Width::Equal, &expression)?;
            }
            ([name @ ("clz" | "popc")], _) if untyped.is_some_and(|of| of.bits > 16) => {
                self.call(operands, name, &[of.ok_or(UNKNOWN)?], U32, "")?;
            }
            (["brev"], _) if untyped.is_some_and(|of| of.bits > 16) => self.same(operands, "brev", of, 1, "")?,
            (["bfe"], _) if integer.is_some_and(|of| of.bits > 16) => {
                let of = of.ok_or(UNKNOWN)?;
                self.call(operands, "bfe", &[of, U32, U32], of, "")?;
            }
            (["bfi"], _) if untyped.is_some_and(|of| of.bits > 16) => {
                let of = of.ok_or(UNKNOWN)?;
                self.call(operands, "bfi", &[of, of, U32, U32], of, "")?;
            }
            (["prmt"], _) if untyped.is_some_and(|of| of.bits == 32) => self.same(operands, "prmt", of, 3, "")?,
            _ if parts[..] == ["dp2a", "lo", "u32", "u32"] => self.same(operands, "dp2a_lo", of, 3, "")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Translates an instruction that compares, chooses, copies or converts. Returns false if it is another one.
    fn selection(&mut self, opcode: &Opcode<'_>) -> Found<bool> {
        let Opcode { parts, of, place, operands, .. } = opcode;
        match opcode.arms() {
            (["setp", comparison], _) => {
                let of = of.ok_or(UNKNOWN)?;
                self.call(operands, comparison_of(comparison, of).ok_or(UNKNOWN)?, &[of, of], PREDICATE, "")?;
            }
            (["selp"], [result, yes, no, predicate]) if of.is_some_and(|of| of.bits > 8) => {
                let of = of.ok_or(UNKNOWN)?;
                let (yes, no) = (self.value(yes, of, Width::Equal)?, self.value(no, of, Width::Equal)?);
                let predicate = self.value(predicate, PREDICATE, Width::Equal)?;
                self.step.code = self.assign(result, of, Width::Equal, &format!("{predicate} ? {yes} : {no}"))?;
            }
            (["mov"], [to, from]) => self.mov(to, from, of.ok_or(UNKNOWN)?)?,
            (["cvt", ..], [to, from]) => self.convert(to, from, &parts[1..])?,
            (["cvta", ..], [to, from]) => {
                let from = self.value(from, U64, Width::Equal)?;
                let expression = match parts[1..] {
                    ["shared", "u64"] => format!("from_shared({from})"),
                    ["global", "u64"] => from,
                    ["to", space @ ("shared" | "global"), "u64"] => format!("to_{space}({from}, {place})"),
                    _ => return Err(UNKNOWN.to_owned()),
                };
                self.step.code = self.assign(to, U64, Width::Equal, &expression)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Translates an instruction that reads or writes memory. Returns false if it is another one.
    fn memory(&mut self, opcode: &Opcode<'_>) -> Found<bool> {
        let Opcode { operands, of, place, used, .. } = opcode;
        match opcode.arms() {
            (["ld", "param", more @ ..], [to, from]) => self.load_parameter(to, from, more, of.ok_or(UNKNOWN)?)?,
            (["ld", more @ ..], [to, from]) => {
                let of = of.ok_or(UNKNOWN)?;
                self.load(to, from, more, of, place, *used)?;
            }
            (["st", more @ ..], [to, from]) => self.store(to, from, more, of.ok_or(UNKNOWN)?, place)?,
            (["atom", more @ ..], _) => self.atom(operands, more, of.ok_or(UNKNOWN)?, place)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A call whose operands and result have the same type.
    fn same(&mut self, operands: &[Operand], function: &str, of: Option<Type>, count: usize, more: &str) -> Found<()> {
        let of = of.ok_or(UNKNOWN)?;
        self.call(operands, function, &vec![of; count], of, more)
    }

    /// A product plus a third operand, which has the result's type.
    fn multiply_add(&mut self, operands: &[Operand], product: &str, of: Type, gives: Type) -> Found<()> {
        let [result, a, b, c] = operands else { return Err("4 operands are expected".to_owned()) };
        let (a, b) = (self.value(a, of, Width::Equal)?, self.value(b, of, Width::Equal)?);
        let c = self.value(c, gives, Width::Equal)?;
        self.step.code = self.assign(result, gives, Width::Equal, &format!("add({product}({a}, {b}), {c})"))?;
        Ok(())
    }

    fn shift(&mut self, operands: &[Operand], function: &str, of: Option<Type>) -> Found<()> {
        let of = of.ok_or(UNKNOWN)?;
        self.call(operands, function, &[of, U32], of, "")
    }

    fn logic(&mut self, operands: &[Operand], name: &str, of: Type) -> Found<()> {
        let to = cpp(of);
        let expression = match (name, operands) {
            ("not", [_, a]) => {
                let a = self.value(a, of, Width::Equal)?;
                if of == PREDICATE { format!("!{a}") } else { format!("static_cast<{to}>(~{a})") }
            }
            (_, [_, a, b]) if name != "not" => {
                let (a, b) = (self.value(a, of, Width::Equal)?, self.value(b, of, Width::Equal)?);
                let sign = match name {
                    "and" => "&",
                    "or" => "|",
                    _ => "^",
                };
                format!("static_cast<{to}>({a} {sign} {b})")
            }
            _ => return Err(UNKNOWN.to_owned()),
        };
        self.step.code = self.assign(&operands[0], of, Width::Equal, &expression)?;
        Ok(())
    }

    /// Moves a value, or packs one of parts, or takes one apart.
    fn mov(&mut self, to: &Operand, from: &Operand, of: Type) -> Found<()> {
        let part = |count: usize| {
            let bits = of.bits / count.max(1) as u32;
            let part = Type { class: Class::Untyped, bits };
            let fits = of.class == Class::Untyped && bits >= 16 && bits * count as u32 == of.bits;
            if fits { Ok(part) } else { Err(UNKNOWN.to_owned()) }
        };
        self.step.code = match (to, from) {
            (Operand::Vector(parts), from) => {
                let part = part(parts.len())?;
                let mut code = format!("{{ const uint64_t whole = {}; ", self.value(from, of, Width::Equal)?);
                for (i, to) in parts.iter().enumerate() {
                    let expression = format!("static_cast<{}>(whole >> {})", cpp(part), i as u32 * part.bits);
                    code += &self.assign(to, part, Width::Equal, &expression)?;
                }
                code + " }"
            }
            (to, Operand::Vector(parts)) => {
                let part = part(parts.len())?;
                let mut values = Vec::new();
                for (i, from) in parts.iter().enumerate() {
                    let value = self.value(from, part, Width::Equal)?;
                    values.push(format!("uint64_t{{{value}}} << {}", i as u32 * part.bits));
                }
                self.assign(to, of, Width::Equal, &format!("static_cast<{}>({})", cpp(of), values.join(" | ")))?
            }
            (to, from) => {
                let value = self.value(from, of, Width::Equal)?;
                self.assign(to, of, Width::Equal, &value)?
            }
        };
        Ok(())
    }

    fn convert(&mut self, to: &Operand, from: &Operand, parts: &[&str]) -> Found<()> {
        let [how @ .., result, source] = parts else { return Err(UNKNOWN.to_owned()) };
        let (Some(result), Some(source)) = (Type::named(result), Type::named(source)) else {
            return Err(UNKNOWN.to_owned());
        };
        let value = self.value(from, source, Width::Wider)?;
        let (d, s) = (cpp(result), cpp(source));
        let rounded = matches!(how, ["rni" | "rzi" | "rmi" | "rpi"]);
        let expression = match (result.is_integer(), source.is_integer(), how) {
            (true, true, []) => format!("static_cast<{d}>({value})"),
            (true, true, ["sat"]) => format!("sat<{d}>({value})"),
            (false, true, ["rn"]) if result.class == Class::Float => format!("to_float<{d}>({value})"),
            (true, false, [rounding]) if source.class == Class::Float && rounded => {
                format!("to_integer<{d}, {s}>({rounding}({value}))")
            }
            (false, false, [rounding]) if result == source && result.class == Class::Float && rounded => {
                format!("{rounding}({value})")
            }
            (false, false, []) if source.class == Class::Float && result.bits > source.bits => {
                format!("to_float<{d}>({value})")
            }
            (false, false, ["rn"]) if result.class == Class::Float && result.bits < source.bits => {
                format!("to_float<{d}>({value})")
            }
            _ => return Err(UNKNOWN.to_owned()),
        };
        // A value that is narrower than its register is extended.
        self.step.code = self.assign(to, result, Width::Wider, &expression)?;
        Ok(())
    }

    /// The operands of a vector, or the one operand.
    fn parts<'o>(operand: &'o Operand, more: &[&str]) -> Found<(&'o [Operand], usize)> {
        let count = match more {
            [] => 1,
            ["v2"] => 2,
            ["v4"] => 4,
            _ => return Err(UNKNOWN.to_owned()),
        };
        let parts = match operand {
            Operand::Vector(parts) if count > 1 => &parts[..],
            Operand::Vector(_) => return Err(UNKNOWN.to_owned()),
            other => std::slice::from_ref(other),
        };
        if parts.len() == count { Ok((parts, count)) } else { Err(format!("a vector of {count} is expected")) }
    }

    /// Assigns what has been loaded into `values`.
    fn assign_all(&mut self, parts: &[Operand], of: Type) -> Found<String> {
        let assigned = parts.iter().enumerate();
        assigned.map(|(i, to)| self.assign(to, of, Width::Wider, &format!("values[{i}]"))).collect()
    }

    fn load_parameter(&mut self, to: &Operand, from: &Operand, more: &[&str], of: Type) -> Found<()> {
        let (parts, count) = Self::parts(to, more)?;
        let Operand::Address(base, offset) = from else { return Err("an address is expected".to_owned()) };
        let Operand::Name(name) = &**base else { return Err("the address is no parameter's".to_owned()) };
        let place = self.parameters.iter().find(|place| place.name == *name);
        let place = place.ok_or_else(|| format!("there is no parameter {name}"))?;
        let bytes = count * of.bytes();
        let offset = usize::try_from(*offset).map_err(|_| "the address is before the parameter")?;
        if offset % bytes != 0 || offset + bytes > place.bytes {
            return Err(format!("{bytes} bytes at {offset} are misaligned or beyond the parameter"));
        }
        let start = place.offset + offset;
        let assigned = self.assign_all(parts, of)?;
        self.step.code =
            format!("{{ {} values[{count}]; load_parameter(values, parameters, {start}); {assigned} }}", cpp(of));
        Ok(())
    }

    /// An address in a space, as an expression.
    fn address(&mut self, operand: &Operand, space: &str) -> Found<String> {
        let Operand::Address(base, offset) = operand else { return Err("an address is expected".to_owned()) };
        let of = match &**base {
            // Addresses in shared memory may have 32 bits.
            Operand::Register(register) if space == "Shared" && self.entry.registers[*register].of.bits == 32 => U32,
            Operand::Name(_) if space == "Shared" => U32,
            Operand::Register(_) => U64,
            _ => return Err("the address is no register and no variable of this memory".to_owned()),
        };
        let base = self.value(base, of, Width::Equal)?;
        Ok(format!(
            "static_cast<{}>({base} + {}u)",
            cpp(of),
            if of == U32 { *offset as u32 as u64 } else { *offset as u64 }
        ))
    }

    /// The space of the modifiers' first, and the rest.
    fn space<'m, 'n>(more: &'m [&'n str]) -> (&'static str, &'m [&'n str]) {
        match more {
            ["global", rest @ ..] => ("Global", rest),
            ["shared", rest @ ..] => ("Shared", rest),
            _ => ("Generic", more),
        }
    }

    fn load(&mut self, to: &Operand, from: &Operand, more: &[&str], of: Type, place: &str, used: u32) -> Found<()> {
        let (space, more) = Self::space(more);
        let (access, more) = match more {
            ["nc", rest @ ..] if space == "Global" => ("constant", rest),
            _ => ("load", more),
        };
        let (parts, count) = Self::parts(to, more)?;
        let address = self.address(from, space)?;
        let assigned = self.assign_all(parts, of)?;
        let used = if used == u32::MAX { String::new() } else { format!(", {used}u") };
        self.step.code = format!(
            "{{ {} values[{count}]; load<{space}, Access::{access}>(values, {address}, {place}{used}); {assigned} }}",
            cpp(of)
        );
        Ok(())
    }

    fn store(&mut self, to: &Operand, from: &Operand, more: &[&str], of: Type, place: &str) -> Found<()> {
        let (space, more) = Self::space(more);
        let (parts, count) = Self::parts(from, more)?;
        let address = self.address(to, space)?;
        let mut values = Vec::new();
        for part in parts {
            values.push(self.value(part, of, Width::Wider)?);
        }
        let values = values.join(", ");
        self.step.code = format!(
            "{{ const {} values[{count}] = {{{values}}}; store<{space}>(values, {address}, {place}); }}",
            cpp(of)
        );
        Ok(())
    }

    fn atom(&mut self, operands: &[Operand], more: &[&str], of: Type, place: &str) -> Found<()> {
        let ((space, [name]), [old, at, by]) = (Self::space(more), operands) else { return Err(UNKNOWN.to_owned()) };
        let (unsigned, untyped) = (of.class == Class::Unsigned, of.class == Class::Untyped);
        let integer = of.is_integer();
        let changed = match *name {
            "add" if unsigned || of.class == Class::Signed && of.bits == 32 => "add(old, by)",
            "min" if integer => "min(old, by)",
            "max" if integer => "max(old, by)",
            "and" if untyped => "old & by",
            "or" if untyped => "old | by",
            "xor" if untyped => "old ^ by",
            "exch" if untyped => "by",
            _ => return Err(UNKNOWN.to_owned()),
        };
        if of.bits < 32 {
            return Err(UNKNOWN.to_owned());
        }
        let to = cpp(of);
        let (at, by) = (self.address(at, space)?, self.value(by, of, Width::Equal)?);
        let change = format!("[by = {by}]([[maybe_unused]] {to} old) -> {to} {{ return {changed}; }}");
        let expression = format!("atom<{space}, {to}>({at}, {place}, {change})");
        self.step.code = self.assign(old, of, Width::Equal, &expression)?;
        Ok(())
    }
}

/// The function for a comparison that the type has.
fn comparison_of(name: &str, of: Type) -> Option<&'static str> {
    let known: &[(&str, &str)] = match of.class {
        _ if of.bits == 8 => &[],
        Class::Predicate => &[],
        Class::Untyped => &[("eq", "eq"), ("ne", "ne")],
        Class::Signed => &[("eq", "eq"), ("ne", "ne"), ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge")],
        Class::Unsigned => &[
            ("eq", "eq"),
            ("ne", "ne"),
            ("lt", "lt"),
            ("le", "le"),
            ("gt", "gt"),
            ("ge", "ge"),
            ("lo", "lt"),
            ("ls", "le"),
            ("hi", "gt"),
            ("hs", "ge"),
        ],
        Class::Float => &[
            ("eq", "eq"),
            ("ne", "ne"),
            ("lt", "lt"),
            ("le", "le"),
            ("gt", "gt"),
            ("ge", "ge"),
            ("equ", "equ"),
            ("neu", "neu"),
            ("ltu", "ltu"),
            ("leu", "leu"),
            ("gtu", "gtu"),
            ("geu", "geu"),
            ("num", "num"),
            ("nan", "nan"),
        ],
    };
    known.iter().find(|(other, _)| *other == name).map(|(_, function)| *function)
}

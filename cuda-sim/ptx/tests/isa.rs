//! Tests of instructions against the rules of the PTX ISA 9.0.

mod common;

use common::{Compiled, kernel};

/// An instruction without operands, its result's and operands' registers (h: 16 bits, r: 32, d: 64, p: predicate), and
/// operands with the result that the ISA gives.
type Rule<'a> = (&'a str, &'a str, &'a [(&'a [u64], u64)]);

/// Runs each rule on its operands, which come from memory.
fn holds(name: &str, rules: &[Rule<'_>]) {
    let (mut body, mut memory) = (String::new(), Vec::new());
    let cases =
        || rules.iter().flat_map(|(opcode, registers, cases)| cases.iter().map(move |case| (opcode, registers, case)));
    for (opcode, registers, (operands, _)) in cases() {
        let names: Vec<String> = registers.chars().enumerate().map(|(i, class)| format!("%{class}{i}")).collect();
        let [result, sources @ ..] = &names[..] else { panic!("{opcode} has no result") };
        assert_eq!(sources.len(), operands.len(), "{opcode}");
        for (source, operand) in sources.iter().zip(*operands) {
            body += &format!("ld.global.u64 %d8, [%in+{}];\n", 8 * memory.len());
            body += &match &source[1..2] {
                "h" => format!("cvt.u16.u64 {source}, %d8;\n"),
                "r" => format!("cvt.u32.u64 {source}, %d8;\n"),
                "d" => format!("mov.b64 {source}, %d8;\n"),
                _ => format!("setp.ne.s64 {source}, %d8, 0;\n"),
            };
            memory.push(*operand);
        }
        body += &format!("{opcode} {};\n", names.join(", "));
        body += &match &result[1..2] {
            "h" => format!("cvt.u64.u16 %d8, {result};\n"),
            "r" => format!("cvt.u64.u32 %d8, {result};\n"),
            "d" => format!("mov.b64 %d8, {result};\n"),
            _ => format!("selp.b64 %d8, 1, 0, {result};\n"),
        };
        body += &format!("st.global.u64 [%in+{}], %d8;\n", 8 * memory.len());
        memory.push(0);
    }
    Compiled::new(&kernel(name, &body)).run(name, [1, 1, 1], [1, 1, 1], 0, &mut memory).unwrap();
    let mut at = 0;
    for (opcode, _, (operands, want)) in cases() {
        at += operands.len() + 1;
        let got = memory[at - 1];
        assert_eq!(got, *want, "{opcode} {operands:#x?}: {got:#x}, not {want:#x}");
    }
}

const fn f(value: f32) -> u64 {
    value.to_bits() as u64
}

const fn d(value: f64) -> u64 {
    value.to_bits()
}

/// A signed number of 32 bits.
const fn s(value: i32) -> u64 {
    value as u32 as u64
}

const NAN: u64 = 0x7fff_ffff;
/// NaN with another content.
const OTHER_NAN: u64 = 0xffc1_2345;
const NAN_64: u64 = 0x7ff8_0000_0000_0000;
const LEAST: u64 = 0x8000_0000;
const LEAST_64: u64 = 1 << 63;
const ALL_64: u64 = u64::MAX;

#[test]
fn shifts_by_their_size_and_more() {
    const RULES: &[Rule<'_>] = &[
        ("shl.b32", "rrr", &[(&[1, 31], LEAST), (&[3, 32], 0), (&[3, 33], 0), (&[3, 0xffff_ffff], 0), (&[3, 0], 3)]),
        ("shl.b16", "hhr", &[(&[0xffff, 15], 0x8000), (&[0xffff, 16], 0), (&[0xffff, 32], 0)]),
        ("shl.b64", "ddr", &[(&[1, 63], LEAST_64), (&[1, 64], 0), (&[1, 65], 0)]),
        ("shr.u32", "rrr", &[(&[LEAST, 31], 1), (&[LEAST, 32], 0), (&[LEAST, 0xffff_ffff], 0)]),
        ("shr.b32", "rrr", &[(&[LEAST, 31], 1)]),
        ("shr.s32", "rrr", &[(&[LEAST, 31], s(-1)), (&[LEAST, 32], s(-1)), (&[LEAST, 99], s(-1)), (&[7, 32], 0)]),
        ("shr.u16", "hhr", &[(&[0x8000, 15], 1), (&[0x8000, 16], 0)]),
        ("shr.s16", "hhr", &[(&[0x8000, 15], 0xffff), (&[0x8000, 16], 0xffff), (&[0x7000, 40], 0)]),
        ("shr.u64", "ddr", &[(&[LEAST_64, 63], 1), (&[LEAST_64, 64], 0)]),
        ("shr.s64", "ddr", &[(&[LEAST_64, 63], ALL_64), (&[LEAST_64, 64], ALL_64), (&[5, 64], 0)]),
        (
            "shf.l.wrap.b32",
            "rrrr",
            &[(&[0x8000_0000, 1, 1], 3), (&[7, 9, 0], 9), (&[7, 9, 32], 9), (&[LEAST, 1, 33], 3)],
        ),
        ("shf.l.clamp.b32", "rrrr", &[(&[7, 9, 32], 7), (&[7, 9, 99], 7), (&[LEAST, 1, 1], 3)]),
        ("shf.r.wrap.b32", "rrrr", &[(&[7, 1, 1], 0x8000_0003), (&[7, 9, 32], 7)]),
        ("shf.r.clamp.b32", "rrrr", &[(&[7, 9, 32], 9), (&[7, 9, 77], 9)]),
    ];
    holds("shifts", RULES);
}

#[test]
fn integers_wrap_and_products_have_halves() {
    const RULES: &[Rule<'_>] = &[
        ("add.s32", "rrr", &[(&[0x7fff_ffff, 1], LEAST), (&[s(-1), 1], 0)]),
        ("add.s16", "hhh", &[(&[0x7fff, 1], 0x8000)]),
        ("add.s64", "ddd", &[(&[ALL_64, 2], 1)]),
        ("sub.s32", "rrr", &[(&[0, 1], s(-1))]),
        ("sub.u16", "hhh", &[(&[0, 1], 0xffff)]),
        ("mul.lo.s32", "rrr", &[(&[0x10001, 0x10001], 0x20001), (&[s(-3), 5], s(-15))]),
        ("mul.lo.s16", "hhh", &[(&[0xffff, 0xffff], 1)]),
        ("mul.lo.s64", "ddd", &[(&[ALL_64, ALL_64], 1)]),
        ("mul.hi.s32", "rrr", &[(&[s(-1), s(-1)], 0), (&[LEAST, 2], s(-1)), (&[LEAST, LEAST], 0x4000_0000)]),
        ("mul.hi.u32", "rrr", &[(&[s(-1), s(-1)], 0xffff_fffe), (&[LEAST, 2], 1)]),
        ("mul.hi.u16", "hhh", &[(&[0xffff, 0xffff], 0xfffe)]),
        ("mul.hi.s64", "ddd", &[(&[ALL_64, 1], ALL_64)]),
        ("mul.hi.u64", "ddd", &[(&[ALL_64, 2], 1)]),
        ("mul.wide.s16", "rhh", &[(&[0xffff, 2], s(-2)), (&[0x8000, 0x8000], 0x4000_0000)]),
        ("mul.wide.u16", "rhh", &[(&[0xffff, 2], 0x1fffe)]),
        ("mul.wide.s32", "drr", &[(&[s(-1), 3], -3i64 as u64)]),
        ("mul.wide.u32", "drr", &[(&[s(-1), 3], 0x2_ffff_fffd)]),
        ("mad.lo.s32", "rrrr", &[(&[LEAST, 2, 7], 7), (&[s(-2), 3, 1], s(-5))]),
        ("mad.hi.u32", "rrrr", &[(&[s(-1), 2, s(-1)], 0)]),
        ("mad.lo.s64", "dddd", &[(&[ALL_64, 5, 4], ALL_64)]),
        ("mad.wide.s32", "drrd", &[(&[s(-1), 3, 1], -2i64 as u64)]),
        ("mad.wide.u32", "drrd", &[(&[s(-1), 3, 3], 0x3_0000_0000)]),
        ("mad.wide.u16", "rhhr", &[(&[0xffff, 0xffff, 1], 0xfffe_0002)]),
        ("div.s32", "rrr", &[(&[s(-7), 2], s(-3)), (&[7, s(-2)], s(-3)), (&[LEAST, s(-1)], LEAST)]),
        ("div.u32", "rrr", &[(&[s(-7), 2], 0x7fff_fffc)]),
        ("div.s64", "ddd", &[(&[LEAST_64, ALL_64], LEAST_64)]),
        ("rem.s32", "rrr", &[(&[s(-7), 2], s(-1)), (&[7, s(-2)], 1), (&[LEAST, s(-1)], 0)]),
        ("rem.u64", "ddd", &[(&[ALL_64, 10], 5)]),
        ("neg.s32", "rr", &[(&[LEAST], LEAST), (&[1], s(-1))]),
        ("abs.s32", "rr", &[(&[LEAST], LEAST), (&[s(-9)], 9)]),
        ("min.s32", "rrr", &[(&[s(-1), 1], s(-1))]),
        ("min.u32", "rrr", &[(&[s(-1), 1], 1)]),
        ("max.s16", "hhh", &[(&[0xffff, 1], 1)]),
        ("max.s64", "ddd", &[(&[ALL_64, 1], 1)]),
        ("min.u64", "ddd", &[(&[ALL_64, 1], 1)]),
    ];
    holds("integers", RULES);
}

#[test]
fn bits_are_chosen_and_moved() {
    const RULES: &[Rule<'_>] = &[
        ("and.b32", "rrr", &[(&[12, 10], 8)]),
        ("or.b16", "hhh", &[(&[12, 10], 14)]),
        ("xor.b64", "ddd", &[(&[12, ALL_64], !12)]),
        ("not.b32", "rr", &[(&[1], 0xffff_fffe)]),
        ("not.b16", "hh", &[(&[1], 0xfffe)]),
        ("clz.b32", "rr", &[(&[0], 32), (&[1], 31), (&[LEAST], 0)]),
        ("clz.b64", "rd", &[(&[0], 64), (&[1], 63)]),
        ("popc.b32", "rr", &[(&[0xf00f], 8)]),
        ("popc.b64", "rd", &[(&[ALL_64], 64)]),
        ("brev.b32", "rr", &[(&[3], 0xc000_0000)]),
        (
            "prmt.b32",
            "rrrr",
            &[
                (&[0x3322_1100, 0x7766_5544, 0x3210], 0x3322_1100),
                (&[0x3322_1100, 0x7766_5544, 0x4567], 0x4455_6677),
                (&[0x8000_0080, 0x7f00_0000, 0xfb98], 0x00ff_00ff),
                (&[0x3322_1100, 0x7766_5544, 0xffff_7604], 0x7766_0044),
            ],
        ),
        (
            "bfe.u32",
            "rrrr",
            &[
                (&[0xabcd, 4, 8], 0xbc),
                (&[s(-1), 0, 0], 0),
                (&[s(-1), 28, 8], 15),
                (&[s(-1), 40, 4], 0),
                (&[0xab, 256, 4], 0xb),
            ],
        ),
        (
            "bfe.s32",
            "rrrr",
            &[(&[0xabcd, 4, 8], s(-68)), (&[LEAST, 31, 8], s(-1)), (&[LEAST, 40, 4], s(-1)), (&[5, 0, 32], 5)],
        ),
        ("bfe.u64", "ddrr", &[(&[ALL_64, 60, 8], 15), (&[ALL_64, 0, 255], ALL_64)]),
        (
            "bfi.b32",
            "rrrrr",
            &[
                (&[0xf, 0, 4, 4], 0xf0),
                (&[s(-1), 0, 28, 9], 0xf000_0000),
                (&[s(-1), 6, 32, 4], 6),
                (&[s(-1), 6, 0, 0], 6),
            ],
        ),
        ("bfi.b64", "dddrr", &[(&[7, 1, 32, 32], 0x7_0000_0001)]),
        ("dp2a.lo.u32.u32", "rrrr", &[(&[0xffff_0002, 0x0909_ff03, 5], 0xffff * 0xff + 2 * 3 + 5)]),
    ];
    holds("bits", RULES);
}

#[test]
fn floats_become_integers_with_limits() {
    const RULES: &[Rule<'_>] = &[
        ("cvt.rni.s32.f32", "rr", &[(&[f(2.5)], 2), (&[f(3.5)], 4), (&[f(-2.5)], s(-2)), (&[f(-0.5)], 0)]),
        (
            "cvt.rzi.s32.f32",
            "rr",
            &[
                (&[f(-0.9)], 0),
                (&[f(3e9)], 0x7fff_ffff),
                (&[f(-3e9)], LEAST),
                (&[f(f32::INFINITY)], 0x7fff_ffff),
                (&[NAN], 0),
                (&[OTHER_NAN], 0),
                (&[f(2_147_483_520.0)], 2_147_483_520),
                (&[f(-2_147_483_648.0)], LEAST),
            ],
        ),
        ("cvt.rmi.s32.f32", "rr", &[(&[f(-0.5)], s(-1)), (&[f(1.5)], 1)]),
        ("cvt.rpi.s32.f32", "rr", &[(&[f(-0.5)], 0), (&[f(1.5)], 2)]),
        (
            "cvt.rzi.u32.f32",
            "rr",
            &[(&[f(-1.0)], 0), (&[f(5e9)], 0xffff_ffff), (&[f(3e9)], 3_000_000_000), (&[NAN], 0)],
        ),
        ("cvt.rzi.u8.f32", "rr", &[(&[f(300.0)], 255), (&[f(255.9)], 255), (&[f(-4.0)], 0)]),
        ("cvt.rzi.s8.f32", "rr", &[(&[f(-300.0)], s(-128)), (&[f(130.0)], 127)]),
        ("cvt.rzi.u64.f32", "dr", &[(&[f(f32::INFINITY)], ALL_64), (&[NAN], LEAST_64)]),
        ("cvt.rzi.s64.f32", "dr", &[(&[f(1e30)], LEAST_64 - 1), (&[NAN], LEAST_64)]),
        (
            "cvt.rzi.s32.f64",
            "rd",
            &[
                (&[d(2_147_483_647.9)], 0x7fff_ffff),
                (&[d(-2_147_483_648.9)], LEAST),
                (&[d(1e300)], 0x7fff_ffff),
                (&[NAN_64], LEAST),
            ],
        ),
        ("cvt.rzi.u32.f64", "rd", &[(&[d(4_294_967_295.5)], 0xffff_ffff), (&[d(-0.5)], 0), (&[NAN_64], LEAST)]),
        ("cvt.rni.s64.f64", "dd", &[(&[d(0.5)], 0), (&[d(1.5)], 2), (&[d(1e19)], LEAST_64 - 1)]),
    ];
    holds("to_integers", RULES);
}

#[test]
fn numbers_become_floats_by_rounding_to_nearest() {
    const RULES: &[Rule<'_>] = &[
        (
            "cvt.rn.f32.u32",
            "rr",
            &[(&[0xffff_ffff], f(4_294_967_296.0)), (&[16_777_217], f(16_777_216.0)), (&[16_777_219], f(16_777_220.0))],
        ),
        ("cvt.rn.f32.s32", "rr", &[(&[s(-1)], f(-1.0)), (&[s(-16_777_217)], f(-16_777_216.0))]),
        ("cvt.rn.f32.u16", "rh", &[(&[0xffff], f(65535.0))]),
        ("cvt.rn.f32.u64", "rd", &[(&[ALL_64], f(1.844_674_4e19))]),
        ("cvt.rn.f64.u64", "dd", &[(&[(1 << 53) + 1], d(9_007_199_254_740_992.0))]),
        ("cvt.rn.f64.s32", "dr", &[(&[LEAST], d(-2_147_483_648.0))]),
        (
            "cvt.rn.f32.f64",
            "rd",
            &[(&[d(1.0 + 1.0 / 16_777_216.0)], f(1.0)), (&[d(1e300)], f(f32::INFINITY)), (&[NAN_64], NAN)],
        ),
        ("cvt.f64.f32", "dr", &[(&[f(0.1)], d(0.1f32 as f64)), (&[1], d(f32::from_bits(1) as f64))]),
        ("cvt.rni.f32.f32", "rr", &[(&[f(2.5)], f(2.0)), (&[f(-0.5)], f(-0.0)), (&[OTHER_NAN], NAN)]),
        ("cvt.rmi.f32.f32", "rr", &[(&[f(-0.5)], f(-1.0))]),
        ("cvt.rzi.f64.f64", "dd", &[(&[d(-1.7)], d(-1.0))]),
    ];
    holds("to_floats", RULES);
}

#[test]
fn integers_are_cut_extended_and_limited() {
    const RULES: &[Rule<'_>] = &[
        ("cvt.u8.u32", "rr", &[(&[0x1ff], 0xff), (&[0x180], 0x80)]),
        ("cvt.s8.s32", "rr", &[(&[0x180], s(-128)), (&[0x17f], 127)]),
        ("cvt.s32.s8", "rr", &[(&[0x180], s(-128))]),
        ("cvt.u16.u8", "hh", &[(&[0x1ff], 0xff)]),
        ("cvt.s32.s16", "rh", &[(&[0x8000], s(-32768))]),
        ("cvt.u32.u16", "rh", &[(&[0x8000], 0x8000)]),
        ("cvt.s64.s32", "dr", &[(&[s(-2)], -2i64 as u64)]),
        ("cvt.u64.s32", "dr", &[(&[s(-2)], -2i64 as u64)]),
        ("cvt.u64.u32", "dr", &[(&[s(-2)], 0xffff_fffe)]),
        ("cvt.u32.u64", "rd", &[(&[0x5_0000_0007], 7)]),
        ("cvt.sat.u8.s32", "rr", &[(&[s(-5)], 0), (&[300], 255), (&[77], 77)]),
        ("cvt.sat.s8.s32", "rr", &[(&[s(-500)], s(-128)), (&[300], 127)]),
        ("cvt.sat.s16.u32", "rr", &[(&[0xffff_ffff], 0x7fff)]),
        ("cvt.sat.u32.s64", "rd", &[(&[ALL_64], 0), (&[1 << 40], 0xffff_ffff)]),
    ];
    holds("widths", RULES);
}

#[test]
fn floats_are_rounded_to_nearest_and_not_contracted() {
    const A: f32 = 1.0 + 1.0 / 4096.0;
    const RULES: &[Rule<'_>] = &[
        (
            "add.rn.f32",
            "rrr",
            &[(&[f(16_777_216.0), f(1.0)], f(16_777_216.0)), (&[f(16_777_216.0), f(3.0)], f(16_777_220.0))],
        ),
        ("sub.rn.f32", "rrr", &[(&[f(f32::INFINITY), f(f32::INFINITY)], NAN), (&[f(1.0), f(1.0)], 0)]),
        (
            "mul.rn.f32",
            "rrr",
            &[(&[f(A), f(A)], f(A * A)), (&[f(1e-30), f(1e-15)], f(1e-45)), (&[OTHER_NAN, f(1.0)], NAN)],
        ),
        ("fma.rn.f32", "rrrr", &[(&[f(A), f(A), f(-1.0 - 1.0 / 2048.0)], f(1.0 / 16_777_216.0))]),
        (
            "div.rn.f32",
            "rrr",
            &[
                (&[f(1.0), f(3.0)], 0x3eaa_aaab),
                (&[0, 0], NAN),
                (&[f(1.0), 0], f(f32::INFINITY)),
                (&[f(f32::MIN_POSITIVE), f(2.0)], 0x0040_0000),
            ],
        ),
        ("sqrt.rn.f32", "rr", &[(&[f(2.0)], 0x3fb5_04f3), (&[f(-1.0)], NAN), (&[f(-0.0)], f(-0.0))]),
        ("neg.f32", "rr", &[(&[f(0.0)], f(-0.0))]),
        ("abs.f32", "rr", &[(&[f(-0.0)], 0), (&[f(-2.0)], f(2.0))]),
        (
            "add.rn.f64",
            "ddd",
            &[
                (&[d(0.1), d(0.2)], 0x3fd3_3333_3333_3334),
                (&[d(9_007_199_254_740_992.0), d(1.0)], d(9_007_199_254_740_992.0)),
            ],
        ),
        ("mul.rn.f64", "ddd", &[(&[d(0.1), d(3.0)], 0x3fd3_3333_3333_3334)]),
        ("sub.rn.f64", "ddd", &[(&[d(0.3), d(0.1)], 0x3fc9_9999_9999_9999)]),
        (
            "div.rn.f64",
            "ddd",
            &[(&[d(1.0), d(3.0)], 0x3fd5_5555_5555_5555), (&[d(1.0), d(-0.0)], d(f64::NEG_INFINITY))],
        ),
        ("fma.rn.f64", "dddd", &[(&[d(0.1), d(10.0), d(-1.0)], 0x3c90_0000_0000_0000)]),
        (
            "min.f32",
            "rrr",
            &[
                (&[OTHER_NAN, f(1.0)], f(1.0)),
                (&[f(1.0), NAN], f(1.0)),
                (&[OTHER_NAN, OTHER_NAN], NAN),
                (&[f(0.0), f(-0.0)], f(-0.0)),
                (&[f(-0.0), f(0.0)], f(-0.0)),
                (&[f(2.0), f(1.0)], f(1.0)),
            ],
        ),
        (
            "max.f32",
            "rrr",
            &[
                (&[OTHER_NAN, f(-1.0)], f(-1.0)),
                (&[f(0.0), f(-0.0)], 0),
                (&[f(-0.0), f(0.0)], 0),
                (&[f(2.0), f(1.0)], f(2.0)),
            ],
        ),
        ("min.f64", "ddd", &[(&[NAN_64, d(1.0)], d(1.0)), (&[d(0.0), d(-0.0)], d(-0.0))]),
    ];
    holds("floats", RULES);
}

#[test]
fn comparisons_know_signs_and_what_is_no_number() {
    const NEITHER: &[(&[u64], u64)] = &[(&[NAN, f(1.0)], 0), (&[f(1.0), OTHER_NAN], 0), (&[NAN, NAN], 0)];
    const EITHER: &[(&[u64], u64)] = &[(&[NAN, f(1.0)], 1), (&[f(1.0), OTHER_NAN], 1), (&[NAN, NAN], 1)];
    const RULES: &[Rule<'_>] = &[
        ("setp.lt.s32", "prr", &[(&[s(-1), 1], 1), (&[1, 1], 0)]),
        ("setp.lt.u32", "prr", &[(&[s(-1), 1], 0)]),
        ("setp.lo.u32", "prr", &[(&[1, s(-1)], 1)]),
        ("setp.hs.u32", "prr", &[(&[s(-1), 1], 1)]),
        ("setp.ge.s64", "pdd", &[(&[ALL_64, 0], 0)]),
        ("setp.gt.u64", "pdd", &[(&[ALL_64, 0], 1)]),
        ("setp.eq.b32", "prr", &[(&[7, 7], 1)]),
        ("setp.ne.s16", "phh", &[(&[7, 7], 0), (&[7, 8], 1)]),
        ("setp.gt.s16", "phh", &[(&[1, 0xffff], 1)]),
        ("setp.eq.f32", "prr", &[(&[f(0.0), f(-0.0)], 1)]),
        ("setp.ne.f32", "prr", &[(&[f(0.0), f(1.0)], 1)]),
        ("setp.geu.f64", "pdd", &[(&[NAN_64, 0], 1), (&[d(1.0), d(2.0)], 0)]),
        ("setp.le.f64", "pdd", &[(&[NAN_64, 0], 0), (&[d(1.0), d(2.0)], 1)]),
        ("selp.b32", "rrrp", &[(&[5, 6, 1], 5), (&[5, 6, 0], 6)]),
        ("selp.b64", "dddp", &[(&[5, 6, 1], 5), (&[5, 6, 0], 6)]),
        ("selp.u16", "hhhp", &[(&[5, 6, 0], 6)]),
        ("and.pred", "ppp", &[(&[1, 0], 0), (&[1, 1], 1)]),
        ("or.pred", "ppp", &[(&[1, 0], 1), (&[0, 0], 0)]),
        ("xor.pred", "ppp", &[(&[1, 1], 0), (&[1, 0], 1)]),
        ("not.pred", "pp", &[(&[1], 0), (&[0], 1)]),
        ("mov.pred", "pp", &[(&[1], 1), (&[0], 0)]),
    ];
    let mut rules = RULES.to_vec();
    for ordered in
        ["setp.eq.f32", "setp.ne.f32", "setp.lt.f32", "setp.le.f32", "setp.gt.f32", "setp.ge.f32", "setp.num.f32"]
    {
        rules.push((ordered, "prr", NEITHER));
    }
    for unordered in
        ["setp.equ.f32", "setp.neu.f32", "setp.ltu.f32", "setp.leu.f32", "setp.gtu.f32", "setp.geu.f32", "setp.nan.f32"]
    {
        rules.push((unordered, "prr", EITHER));
    }
    holds("comparisons", &rules);
}

/// A kernel that runs once.
fn once(name: &str, body: &str, memory: &mut [u64]) {
    Compiled::new(&kernel(name, body)).run(name, [1, 1, 1], [1, 1, 1], 0, memory).unwrap();
}

#[test]
fn memory_is_read_and_written_with_its_width() {
    let mut memory = [0x8877_6655_4433_22f1, 0x1122_3344_5566_7788, 0, 0, 0, 0, 0, 0, 0, 0, ALL_64, ALL_64];
    once(
        "widths",
        "ld.global.s8 %r0, [%in]; st.global.u32 [%in+16], %r0;
         ld.global.u8 %r1, [%in]; st.global.u32 [%in+20], %r1;
         ld.global.s16 %r2, [%in+6]; st.global.u32 [%in+24], %r2;
         ld.global.nc.u16 %h0, [%in+6]; st.global.u16 [%in+28], %h0;
         ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%in]; st.global.v4.b32 [%in+32], {%r6, %r5, %r4, %r3};
         add.s64 %d0, %in, 100;
         ld.global.v2.u64 {%d1, %d2}, [%d0+-100]; st.global.v2.u64 [%in+48], {%d2, %d1};
         mov.b64 {%r3, %r4}, %d1; mov.b64 %d3, {%r4, %r3}; st.global.u64 [%in+64], %d3;
         mov.b32 {%h1, _}, %r3; mov.b32 %r7, {%h1, %h1}; st.global.u32 [%in+72], %r7;
         ld.u32 %r8, [%in+4]; st.u16 [%in+76], %r8;
         st.global.u8 [%in+80], %r3;
         ld.global.v4.u16 {%h2, %h3, %h4, %h5}, [%in]; st.global.u16 [%in+90], %h5;",
        &mut memory,
    );
    assert_eq!(
        memory[2..],
        [
            0x0000_00f1_ffff_fff1,
            0x0000_8877_ffff_8877,
            0x5566_7788_1122_3344,
            0x8877_6655_4433_22f1_u64.rotate_left(32),
            0x1122_3344_5566_7788,
            0x8877_6655_4433_22f1,
            0x4433_22f1_8877_6655,
            0x0000_6655_22f1_22f1,
            0xffff_ffff_ffff_fff1,
            0xffff_ffff_8877_ffff,
        ]
    );
}

#[test]
fn shared_memory_is_reached_in_its_own_and_in_generic_addresses() {
    let body = "mov.u32 %r0, many; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; add.s32 %r3, %r0, %r2;
         st.shared.u32 [%r3], %r1; bar.sync 0;
         sub.s32 %r4, 28, %r2; add.s32 %r4, %r4, %r0; cvt.u64.u32 %d0, %r4; cvta.shared.u64 %d1, %d0;
         ld.u32 %r5, [%d1]; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %in, %d2; st.global.u32 [%d3], %r5;
         ld.shared.v2.u32 {%r6, %r7}, [many+8]; st.global.u32 [%d3+32], %r7;";
    let text =
        kernel("shared", body).replace("{\n", "{\n.shared .align 8 .b8 other[4];\n.shared .align 16 .b8 many[32];\n");
    let text = text.replacen(".shared", "{ .reg .b32 %r0; mov.u32 %r0, other; st.shared.u32 [%r0], 1; }\n.shared", 1);
    let compiled = Compiled::new(&text);
    for order in 0..4 {
        let mut memory = [0; 8];
        compiled.run("shared", [1, 1, 1], [8, 1, 1], order << 10, &mut memory).unwrap();
        assert_eq!(
            memory,
            [
                0x6_0000_0007,
                0x4_0000_0005,
                0x2_0000_0003,
                1,
                0x3_0000_0003,
                0x3_0000_0003,
                0x3_0000_0003,
                0x3_0000_0003
            ]
        );
    }
}

#[test]
fn guards_and_branches_follow_predicates() {
    let mut memory = [0; 2];
    once(
        "branches",
        "mov.u32 %r0, 0; mov.u32 %r1, 0;
         $again: add.s32 %r1, %r1, %r0; add.s32 %r0, %r0, 1; setp.lt.s32 %p0, %r0, 5; @%p0 bra $again;
         @%p0 add.s32 %r1, %r1, 1000; @!%p0 add.s32 %r1, %r1, 100;
         not.pred %p1, %p0; and.pred %p2, %p1, !%p0; selp.u32 %r2, 1, 0, %p2;
         bra.uni $end; mov.u32 %r1, 0;
         $end: st.global.v2.u32 [%in], {%r1, %r2};",
        &mut memory,
    );
    assert_eq!(memory, [0x1_0000_006e, 0]);
}

#[test]
fn atomic_operations_lose_nothing() {
    let body = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r2, 1, %r0;
         atom.global.add.u32 %r3, [%in], 1; atom.add.u64 %d0, [%in+8], 3; atom.or.b32 _, [%in+16], %r2;
         atom.global.max.s32 %r4, [%in+20], %r1; atom.global.min.u32 %r5, [%in+24], %r0;
         atom.global.exch.b32 %r6, [%in+28], 9; atom.global.and.b32 _, [%in+32], 6; atom.global.xor.b32 _, [%in+36], 1;";
    let compiled = Compiled::new(&kernel("atoms", body));
    for order in [0, 1, 77_777_777, u64::MAX] {
        let mut memory = [0, 0, 0xffff_ffff << 32, 5, 7];
        compiled.run("atoms", [3, 2, 1], [16, 1, 1], order, &mut memory).unwrap();
        assert_eq!(memory, [96, 288, 0x2_0000_ffff, 9 << 32, 6], "{order}");
    }
}

/// Each thread of each block writes its place; in any order of the blocks, all are there once.
#[test]
fn every_thread_knows_its_place() {
    let body = "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z;
         mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y; mad.lo.s32 %r1, %r2, %r4, %r1; mad.lo.s32 %r0, %r1, %r3, %r0;
         mov.u32 %r1, %ntid.x; mov.u32 %r2, %ntid.y; mov.u32 %r3, %ntid.z;
         mul.lo.s32 %r4, %r1, %r2; mul.lo.s32 %r4, %r4, %r3; mul.lo.s32 %r0, %r0, %r4;
         mov.u32 %r5, %tid.x; mov.u32 %r6, %tid.y; mov.u32 %r7, %tid.z;
         mad.lo.s32 %r6, %r7, %r2, %r6; mad.lo.s32 %r5, %r6, %r1, %r5; add.s32 %r0, %r0, %r5;
         mul.wide.u32 %d0, %r0, 8; add.s64 %d0, %in, %d0; ld.global.u64 %d1, [%d0]; cvt.u64.u32 %d2, %r0;
         mad.lo.s64 %d1, %d1, 1000, %d2; st.global.u64 [%d0], %d1;";
    let compiled = Compiled::new(&kernel("places", body));
    for order in [0, 1, 1 << 21, 123_456_789_123, u64::MAX] {
        let mut memory: Vec<u64> = vec![1; 3 * 4 * 5 * 2 * 3 * 2];
        compiled.run("places", [3, 4, 5], [2, 3, 2], order, &mut memory).unwrap();
        assert_eq!(memory, (1000..1000 + memory.len() as u64).collect::<Vec<_>>(), "{order}");
    }
}

//! The count of a launch's instructions.

mod common;

use common::{Compiled, kernel};

/// Lane t goes t + 1 times through a loop whose branch odd and even lanes take differently.
#[test]
fn lanes_go_in_step() {
    let body = "mov.u32 %r0, %tid.x;\nand.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 0;\nmov.u32 %r1, 0;\n\
        LOOP:\nadd.u32 %r1, %r1, 1;\n@%p0 bra EVEN;\nadd.u32 %r3, %r1, 7;\nbra JOIN;\nEVEN:\nadd.u32 %r3, %r1, 9;\n\
        JOIN:\nsetp.le.u32 %p1, %r1, %r0;\n@%p1 bra LOOP;\nadd.u32 %r4, %r3, 1;";
    let compiled = Compiled::new(&kernel("in_step", body));
    // Five before the loop, seven in it while lanes of both kinds go on, six for the last lane, two after it.
    let of_warp = |lanes: u64| 5 + 7 * (lanes - 1) + 6 + 2;
    assert_eq!(compiled.counted("in_step", 1, 32), [of_warp(32); 3]);
    let both = of_warp(32) + of_warp(64);
    assert_eq!(compiled.counted("in_step", 1, 64), [of_warp(64), both, of_warp(64)]);
    assert_eq!(compiled.counted("in_step", 3, 64), [of_warp(64), 3 * both, 3 * of_warp(64)]);
}

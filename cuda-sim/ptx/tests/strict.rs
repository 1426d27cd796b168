//! Faults that the simulation refuses, in a text or in a running kernel.

mod common;

use common::{Compiled, HEAD, kernel};

/// The error of a text that cannot be translated.
fn error(kernels: &str) -> String {
    cuda_sim_ptx::translate(&format!("{HEAD}{kernels}")).unwrap_err().to_string()
}

#[test]
fn what_is_not_known_is_named() {
    let unknown = [
        ("shfl.sync.idx.b32 %r0, %r1, 0, 31, -1;", "shfl.sync.idx.b32"),
        ("add.f32 %r0, 0f00000000, 0f00000000;", "add.f32"),
        ("add.rz.f32 %r0, 0f00000000, 0f00000000;", "add.rz.f32"),
        ("add.ftz.rn.f32 %r0, 0f00000000, 0f00000000;", "add.ftz.rn.f32"),
        ("cvt.rn.f16.f32 %h0, 0f00000000;", "cvt.rn.f16.f32"),
        ("cvt.rn.s32.f32 %r0, 0f00000000;", "cvt.rn.s32.f32"),
        ("cvt.f32.f64 %r0, 0d0000000000000000;", "cvt.f32.f64"),
        ("ld.volatile.global.u32 %r0, [%in];", "ld.volatile.global.u32"),
        ("atom.global.cas.b32 %r0, [%in], 0, 1;", "atom.global.cas.b32"),
        ("bar.sync 1;", "bar.sync"),
        ("setp.lt.and.s32 %p0, 1, 2, %p1;", "setp.lt.and.s32"),
        ("prmt.b32.f4e %r0, 0, 0, 0;", "prmt.b32.f4e"),
        ("mul.lo.u8 %h0, 1, 2;", "mul.lo.u8"),
    ];
    for (instruction, opcode) in unknown {
        // The module's head has 3 lines, and the kernel's 8.
        let got = error(&kernel("odd", instruction));
        let want = format!("kernel odd, line 12: {opcode}: this form of the instruction is not known");
        assert_eq!(got, want, "{instruction}");
    }
    let other = [
        ("add.s32 %r0, %h0, 1;", "add.s32: v_h0 has another type"),
        ("add.s32 %d0, 1, 1;", "add.s32: v_d0 has another type"),
        ("add.s32 %r0, 1, 1, 1;", "add.s32: 3 operands are expected"),
        ("mov.u32 %r0, %laneid;", "mov.u32: %laneid is not known"),
        ("mov.u64 %d0, %tid.x;", "mov.u64: %tid.x has another size"),
        ("bra nowhere;", "there is no label nowhere"),
        ("ld.param.u64 %d0, [odd_param+8];", "ld.param.u64: 8 bytes at 8 are misaligned or beyond the parameter"),
        ("ld.param.u32 %r0, [odd_param+2];", "ld.param.u32: 4 bytes at 2 are misaligned or beyond the parameter"),
        ("ld.global.v4.u32 {%r0, %r1}, [%in];", "ld.global.v4.u32: a vector of 4 is expected"),
        ("st.shared.u32 [nothing], 1;", "st.shared.u32: nothing is not known"),
    ];
    for (instruction, what) in other {
        assert_eq!(error(&kernel("odd", instruction)), format!("kernel odd, line 12: {what}"), "{instruction}");
    }
    assert_eq!(error(".global .u32 x;"), "line 4: Word(\".global\") is not known outside of kernels");
    assert_eq!(error(&kernel("odd", ".local .b8 depot[8];")), "kernel odd, line 12: the directive .local is not known");
}

#[test]
fn a_register_is_written_on_every_way_before_it_is_read() {
    let way = |first, second| {
        format!(
            "ld.global.u32 %r0, [%in]; setp.eq.s32 %p0, %r0, 0; @%p0 bra $other;\n{first}\nbra.uni $end;\n$other: {second}\n\
             $end: st.global.u32 [%in], %r1;"
        )
    };
    let set = "mov.u32 %r1, 1;";
    assert!(cuda_sim_ptx::translate(&format!("{HEAD}{}", kernel("ways", &way(set, set)))).is_ok());
    let wanted = "kernel ways, line 16: v_r1 is read, but not written on every way here";
    assert_eq!(error(&kernel("ways", &way(set, ""))), wanted);
    assert_eq!(error(&kernel("ways", &way("", set))), wanted);
    assert_eq!(error(&kernel("ways", &way(set, "@%p0 mov.u32 %r1, 1;"))), wanted);
    // A loop in which the first round reads what only later ones have written.
    let around =
        "mov.u32 %r0, 0;\n$again: add.s32 %r0, %r0, %r1;\nmov.u32 %r1, 1;\nsetp.lt.s32 %p0, %r0, 9;\n@%p0 bra $again;";
    assert_eq!(error(&kernel("ways", around)), "kernel ways, line 13: v_r1 is read, but not written on every way here");
}

#[test]
fn limits_of_parameters_and_shared_memory_are_kept() {
    let with = |parameter: usize, shared: usize| {
        format!(
            ".visible .entry big(.param .align 8 .b8 big_param[{parameter}])\n{{\n.shared .align 4 .b8 much[{shared}];\n\
             .reg .b32 %r<2>;\nmov.u32 %r1, much;\nret;\n}}\n"
        )
    };
    assert!(cuda_sim_ptx::translate(&format!("{HEAD}{}", with(4096, 49152))).is_ok());
    assert_eq!(error(&with(4097, 4)), "kernel big, line 10: more than 4096 bytes of parameters");
    assert_eq!(error(&with(8, 49156)), "kernel big, line 10: more than 49152 bytes of static shared memory");
}

/// Runs a kernel of two blocks of 32 threads on 64 numbers, in each of some orders; all must be refused with this text.
fn refused(name: &str, body: &str, what: &str) {
    let places = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.s32 %r2, %r1, 32, %r0; mul.wide.u32 %d0, %r2, 4;
         add.s64 %d1, %in, %d0; mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %in, %d2; shl.b32 %r3, %r0, 2;
         mov.u32 %r4, room; add.s32 %r3, %r3, %r4;";
    let text = kernel(name, &format!("{places}\n{body}"));
    let compiled = Compiled::new(&text.replace("{\n", "{\n.shared .align 16 .b8 room[128];\n"));
    for order in [0, 1, 1 << 10, 99_999_999_999] {
        let got = compiled.run(name, [2, 1, 1], [32, 1, 1], order, &mut [0; 32]);
        match got {
            Err(text) => assert!(text.contains(what), "{order}: {text}"),
            Ok(()) => assert_eq!(what, "nothing", "{order}: not refused"),
        }
    }
}

#[test]
fn wrong_addresses_are_refused() {
    refused("right_address", "st.global.u32 [%d1], %r0;", "nothing");
    refused(
        "odd_address",
        "st.global.u16 [%in+1], 0;",
        "line 16, st.global.u16: a store of 2 bytes, which is misaligned,",
    );
    refused(
        "odd_vector",
        "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%in+8];",
        "a load of 16 bytes, which is misaligned,",
    );
    refused(
        "odd_shared",
        "st.shared.v2.u32 [room+4], {%r0, %r0};",
        "a store of 8 bytes in shared memory, which is misaligned,",
    );
    refused("far", "ld.global.u64 %d3, [%in+256];", "line 16, ld.global.u64: a load of 8 bytes");
    refused("before", "ld.global.u8 %r5, [%in+-1];", "a load of 1 bytes");
    refused("beyond_shared", "st.shared.u32 [room+128], 1;", "in none of the kernel's variables");
    refused("before_shared", "st.shared.u32 [room+-4], 1;", "in none of the kernel's variables");
    refused("no_address", "mov.b64 %d3, 0; st.u32 [%d3], 1;", "a store of 4 bytes");
    refused(
        "space",
        "cvt.u64.u32 %d3, %r3; cvta.shared.u64 %d3, %d3; cvta.to.global.u64 %d3, %d3;",
        "is in shared memory",
    );
    refused("other_space", "cvta.to.shared.u64 %d3, %in;", "is not in shared memory");
}

#[test]
fn divisions_by_zero_are_refused() {
    refused("division", "div.u32 %r5, 7, %r1;", "line 16, div.u32: a division by zero");
    refused("remainder", "cvt.u64.u32 %d3, %r1; rem.s64 %d3, %d3, %d3;", "a remainder of a division by zero");
}

#[test]
fn barriers_are_for_all_threads_of_a_block() {
    let half = "setp.lt.u32 %p0, %r0, 16;";
    refused("all_wait", "bar.sync 0;", "nothing");
    refused("blocks_differ", "setp.eq.u32 %p0, %r1, 0; @%p0 bra $end;\nbar.sync 0;\n$end:", "nothing");
    let ended = "16 of 32 threads of block";
    refused("some_end", &format!("{half} @%p0 ret;\nbar.sync 0;"), ended);
    refused("some_skip", &format!("{half} @%p0 bra $end;\nbar.sync 0;\n$end:"), ended);
    let elsewhere = "wait for others that have ended or wait elsewhere: line 1";
    refused(
        "some_elsewhere",
        &format!("{half} @%p0 bra $other;\nbar.sync 0; bra.uni $end;\n$other:\nbar.sync 0;\n$end:"),
        elsewhere,
    );
}

#[test]
fn races_in_shared_memory_are_refused() {
    let next = "xor.b32 %r5, %r3, 4;";
    let loaded = "another thread has";
    refused("ordered", &format!("st.shared.u32 [%r3], %r0; bar.sync 0; {next} ld.shared.u32 %r6, [%r5];"), "nothing");
    refused("no_barrier", &format!("st.shared.u32 [%r3], %r0; {next} ld.shared.u32 %r6, [%r5];"), loaded);
    refused(
        "no_second",
        &format!("st.shared.u32 [%r3], 1; bar.sync 0; {next} ld.shared.u32 %r6, [%r5]; st.shared.u32 [%r3], 2;"),
        loaded,
    );
    refused("equal_marks", "st.shared.u32 [room], 7;", "nothing");
    refused("other_marks", "st.shared.u32 [room], %r0;", "another thread has stored them since the last barrier");
    refused(
        "counted",
        "setp.ne.s32 %p0, %r0, 0; @%p0 bra $wait; st.shared.u32 [room], 0;\n$wait: bar.sync 0;\natom.shared.add.u32 %r5, [room], 1;",
        "nothing",
    );
    refused("not_counted", "st.shared.u32 [%r3], 0; atom.shared.add.u32 %r5, [room], 1;", "another thread has stored");
    refused("counted_and_read", "atom.shared.add.u32 %r5, [room], 1; ld.shared.u32 %r6, [room];", "another thread has");
}

#[test]
fn races_in_global_memory_are_refused() {
    refused("apart", "ld.global.u32 %r5, [%d1]; add.s32 %r5, %r5, 1; st.global.u32 [%d1], %r5;", "nothing");
    refused("blocks_store", "st.global.u32 [%d2], %r1;", "another block has stored them in this launch");
    refused("blocks_store_the_same", "st.global.u32 [%d2], 5;", "nothing");
    refused("blocks_load_and_store", "ld.global.u32 %r5, [%d2]; st.global.u32 [%d2], %r2;", "another block has");
    refused("blocks_load", "ld.global.u32 %r5, [%d2];", "nothing");
    refused("one_loads", "bar.sync 0; ld.global.u8 %r5, [%in+129]; st.global.u32 [%d1], %r0;", "another");
    refused("neighbours", "st.global.u8 [%d1], %r0; st.global.u8 [%d1+1], %r0;", "nothing");
    refused(
        "threads",
        "st.global.u32 [%d1], %r2; xor.b32 %r5, %r2, 1; mul.wide.u32 %d3, %r5, 4; add.s64 %d3, %in, %d3; ld.global.u32 %r6, [%d3];",
        "another thread has",
    );
    refused(
        "threads_ordered",
        "st.global.u32 [%d1], %r2; bar.sync 0; xor.b32 %r5, %r2, 1; mul.wide.u32 %d3, %r5, 4; add.s64 %d3, %in, %d3; ld.global.u32 %r6, [%d3];",
        "nothing",
    );
    refused("atomic", "atom.global.add.u32 %r5, [%in], 1;", "nothing");
    refused("atomic_and_plain", "atom.global.add.u32 %r5, [%in], 1; ld.global.u32 %r6, [%in];", "another");
    refused("plain_and_atomic", "st.global.u32 [%in], %r2; atom.global.add.u32 %r5, [%in], 1;", "another");
}

#[test]
fn what_is_taken_for_constant_is_not_stored() {
    let takes = "an instruction that takes them for constant";
    refused("constant", "ld.global.nc.u32 %r5, [%d1];", "nothing");
    refused("constant_then_stored", "ld.global.nc.u32 %r5, [%d1]; st.global.u32 [%d1], %r5;", takes);
    refused("stored_then_constant", "st.global.u32 [%d1], 1; ld.global.nc.u32 %r5, [%d1];", "they are not constant");
}

/// Memory that a launch stores may be loaded, and taken for constant, by the next.
#[test]
fn launches_are_ordered() {
    let store = kernel(
        "store",
        "mov.u32 %r0, %ctaid.x; cvt.u64.u32 %d0, %r0; shl.b64 %d0, %d0, 3; add.s64 %d0, %in, %d0; st.global.u64 [%d0], %d0;",
    );
    let load = kernel("load", "ld.global.nc.u64 %d0, [%in]; ld.global.u64 %d1, [%in+8];");
    let compiled = Compiled::new(&(store + &load));
    let mut memory = [0; 2];
    for name in ["store", "load", "store", "load"] {
        compiled.run(name, [2, 1, 1], [1, 1, 1], 1 << 20, &mut memory).unwrap();
    }
}

/// A vector of 16 bytes with 12 used ones: the others may be stored by others.
#[test]
fn unused_bytes_of_a_load_do_not_count() {
    let body = |pragma| {
        format!(
            "setp.ne.s32 %p0, %r0, 3; @%p0 bra $end; st.shared.u32 [room+12], 1;\n$end: bar.sync 0; st.shared.u32 [room+12], %r1;\n\
             {pragma}\nld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [room];"
        )
    };
    refused("partly_used", &body(".pragma \"used_bytes_mask 4095\";"), "nothing");
    refused("all_used", &body(""), "another thread has");
}

/// A register that nothing writes has another content in each thread.
#[test]
fn rubbish_is_not_the_same_twice() {
    let compiled = Compiled::new(&kernel(
        "rubbish",
        "mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 8; add.s64 %d0, %in, %d0; st.global.u64 [%d0], %d7;",
    ));
    let mut memory = [0; 8];
    compiled.run("rubbish", [1, 1, 1], [8, 1, 1], 0, &mut memory).unwrap();
    let mut sorted = memory;
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "{memory:x?}");
}

//! All kernels of kernels/*.cu are found. Tests of the pipeline compare their results.

use cuda_sim::Kernel;

#[test]
fn the_table_has_a_line_for_every_kernel() {
    let table = include_str!("../../kernels/model.tsv");
    for kernel in Kernel::all() {
        let mut line = kernel.name().to_owned();
        for family in ["fused", "finish", "mixup", "erase_noise"] {
            if line.starts_with(family) {
                line = format!("{family}_f16_nchw");
            }
        }
        assert!(table.contains(&format!("\n{line}\t")), "{line} is missing");
    }
}

#[test]
fn every_kernel_is_found_by_name() {
    for kernel in Kernel::all() {
        assert_eq!(Kernel::find(kernel.name()), Some(kernel));
    }
    assert_eq!(Kernel::all().filter(|kernel| kernel.name().starts_with("fused_")).count(), 8);
    assert_eq!(Kernel::find("fused"), None);
}

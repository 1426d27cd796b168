//! Turns nvjpeg.h into Rust on standard output: `nvjpeg-bindgen HEADER [CLANG ARGUMENTS]`. Linked symbols become
//! function pointer types in a module `functions`.

use std::error::Error;

use quote::quote;
use syn::{ForeignItem, Item};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let header = arguments.next().ok_or("usage: nvjpeg-bindgen HEADER [CLANG ARGUMENTS]")?;
    let bindings = bindgen::Builder::default()
        .header(header)
        .clang_args(arguments)
        .allowlist_item("(nvjpeg|NVJPEG_|tDev|tPinned).*")
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .prepend_enum_name(false)
        .derive_debug(true)
        .generate_comments(false)
        .layout_tests(true)
        .rust_target("1.85".parse()?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::None)
        .generate()?;
    let file = syn::parse_file(&bindings.to_string())?;

    let mut types = Vec::new();
    let mut functions = Vec::new();
    for item in file.items {
        let Item::ForeignMod(block) = item else {
            types.push(item);
            continue;
        };
        for item in block.items {
            let ForeignItem::Fn(function) = item else {
                return Err("a foreign item that is no function".into());
            };
            let (name, inputs, output) = (&function.sig.ident, &function.sig.inputs, &function.sig.output);
            functions.push(quote! { pub type #name = unsafe extern "C" fn(#inputs) #output; });
        }
    }
    println!("// Made from nvjpeg.h by nvjpeg-sys/regenerate. Do not edit.\n");
    println!("{}", quote! { #(#types)* pub mod functions { use super::*; #(#functions)* } });
    Ok(())
}

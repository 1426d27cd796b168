//! `cuda-sim-ptx FOLDER < IMAGE` makes a library of a fat binary or of PTX in FOLDER, and prints its path.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

fn run() -> Result<String, String> {
    let [folder] = &std::env::args_os().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: cuda-sim-ptx FOLDER < IMAGE".to_owned());
    };
    let mut image = Vec::new();
    std::io::stdin().read_to_end(&mut image).map_err(|error| error.to_string())?;
    let path = cuda_sim_ptx::library(&image, Path::new(folder)).map_err(|error| error.to_string())?;
    Ok(path.display().to_string())
}

fn main() -> ExitCode {
    match run() {
        Ok(path) => {
            println!("{path}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cuda-sim-ptx: {error}");
            ExitCode::FAILURE
        }
    }
}

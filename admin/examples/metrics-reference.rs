//! Writes or checks what is made from the catalogue of metrics: `deploy/METRICS.md` and
//! `deploy/grafana/millrace.json`.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use millrace_admin::metrics::reference;

const USAGE: &str = "Usage: metrics-reference --write | --check | --series

  --write   write the files below deploy/ anew
  --check   say which of them are not as the catalogue makes them
  --series  print the names of all series that a scrape may have";

fn main() -> ExitCode {
    let argument = env::args().nth(1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match argument.as_deref() {
        Some("--write") => {
            for (file, text) in reference::files() {
                let path = folder.join(file);
                let made = path.parent().map_or(Ok(()), fs::create_dir_all);
                if let Err(error) = made.and_then(|()| fs::write(&path, text)) {
                    eprintln!("{file}: {error}");
                    return ExitCode::FAILURE;
                }
                println!("{file}");
            }
            ExitCode::SUCCESS
        }
        Some("--check") => {
            let mut current = true;
            for (file, text) in reference::files() {
                if fs::read_to_string(folder.join(file)).ok() != Some(text) {
                    eprintln!("{file} is out of date; write it with --write");
                    current = false;
                }
            }
            ExitCode::from(u8::from(!current))
        }
        Some("--series") => {
            reference::series().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

//! Tells the crate how it is built, for the metric `millrace_build_info`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = Command::new(rustc).arg("--version").output();
    let text = told.map_or_else(
        |_| String::new(),
        |told| String::from_utf8_lossy(&told.stdout).into_owned(),
    );
    // rustc 1.95.0 (59807616e 2026-04-14)
    let version = text.split_ascii_whitespace().nth(1).unwrap_or("unknown");
    println!("cargo:rustc-env=MILLRACE_RUSTC={version}");
    // `release` for every profile that is optimized like it.
    let profile = env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=MILLRACE_PROFILE={profile}");
}

//! Names the build, for the header of tapes: a tape is exact for one build only.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// All that decides what a step does: the core and the types that it decodes, the crates that they use, and
/// the compiler.
const DECIDES: [&str; 4] = ["src/core", "src/api", "Cargo.lock", "rust-toolchain.toml"];

fn main() -> io::Result<()> {
    let mut hash = DefaultHasher::new();
    for path in DECIDES {
        println!("cargo::rerun-if-changed={path}");
        take_in(Path::new(path), &mut hash)?;
    }
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    println!("cargo::rustc-env=STEPLET_BUILD={version}-{:016x}", hash.finish());
    Ok(())
}

fn take_in(path: &Path, hash: &mut DefaultHasher) -> io::Result<()> {
    if !path.is_dir() {
        hash.write(path.to_string_lossy().as_bytes());
        let text = fs::read(path)?;
        hash.write_usize(text.len());
        hash.write(&text);
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| take_in(entry, hash))
}

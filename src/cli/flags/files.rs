//! The files that `settings` asks for, so that it can be tried without a disk.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Reads files and directories.
pub trait Files {
    /// At most `most` bytes of a file, and one more when there are more.
    fn read(&self, path: &str, most: usize) -> io::Result<Vec<u8>>;
    /// All files below a directory, in the order of their names, directory by directory. Links are
    /// not followed into directories.
    fn walk(&self, dir: &str) -> io::Result<Vec<String>>;
    /// The path from the root.
    fn absolute(&self, path: &str) -> io::Result<String>;
    /// A variable of the environment, where proxies may stand.
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

/// The machine's own.
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn walk(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        walk(Path::new(dir), 0, &mut files)?;
        Ok(files)
    }

    fn absolute(&self, path: &str) -> io::Result<String> {
        Ok(std::path::absolute(path)?.to_string_lossy().into_owned())
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Deeper than anyone arranges drop-ins, and far from the end of the stack.
const DEPTH_MAX: u32 = 32;

fn walk(dir: &Path, depth: u32, files: &mut Vec<String>) -> io::Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if !entry.file_type()?.is_dir() {
            files.push(entry.path().to_string_lossy().into_owned());
        } else if depth < DEPTH_MAX {
            walk(&entry.path(), depth + 1, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_in_order_of_names() {
        let root = std::env::temp_dir().join(format!("steplet-walk-{}", std::process::id()));
        for name in ["20.conf", "10.d/b.conf", "10.d/a.conf", "30/x/y.conf", "00.txt"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink("30", root.join("25.conf")).unwrap();
        let root_name = root.to_string_lossy().into_owned();
        let found = Disk.walk(&root_name).unwrap();
        let found: Vec<&str> = found.iter().map(|path| &path[root_name.len() + 1..]).collect();
        let want = ["00.txt", "10.d/a.conf", "10.d/b.conf", "20.conf", "25.conf", "30/x/y.conf"];
        assert_eq!(found, want);
        assert_eq!(Disk.read(&format!("{root_name}/20.conf"), 3).unwrap(), b"20.c");
        assert!(Disk.walk(&format!("{root_name}/20.conf")).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}

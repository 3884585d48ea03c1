//! The segments in the tape directory: named by number, closed ones compressed, the oldest deleted first.

use super::frame::{Bad, compress};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A smaller bound would not hold a few segments with their snapshots.
pub const TAPE_BYTES_MIN: u64 = 1 << 20;
/// Of `--tape-max`: a segment's steps take at most this part, so that many segments fit.
const SEGMENTS_MIN: u64 = 16;

/// Of a segment's number in its name. One that is longer is not from here, and none would follow the last one.
const NUMBER_DIGITS: RangeInclusive<usize> = 8..=15;
/// Names in a row that may be taken by what is no segment.
const NAMES_TRIED: u64 = 100;

/// Work that may hang on the disk, for the helper pool. When one of these fails or is dropped, nothing is lost
/// but its purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapeJob {
    /// `sync_file`.
    Sync(PathBuf),
    /// `compress_segment`.
    Compress(PathBuf),
}

impl TapeJob {
    /// Does the work, in a helper process.
    pub fn run(&self) -> io::Result<()> {
        match self {
            TapeJob::Sync(path) => sync_file(path).and_then(|()| sync_dir_of(path)),
            TapeJob::Compress(path) => compress_segment(path),
        }
    }
}

/// Brings a file to the disk; one that was deleted meanwhile is fine.
pub fn sync_file(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A new file's name is the directory's to keep.
fn sync_dir_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_file)
}

/// Replaces a closed segment `N.tape` by `N.tape.z`. One that is damaged stays as it is.
pub fn compress_segment(path: &Path) -> io::Result<()> {
    let from = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let packed = path.with_extension("tape.z");
    let unfinished = path.with_extension("tape.tmp");
    let _ = fs::remove_file(&unfinished);
    let mut to = BufWriter::new(create_new(&unfinished)?);
    let done = compress(&from, &mut to)
        .and_then(|()| Ok(to.flush()?))
        .and_then(|()| Ok(to.get_ref().sync_all()?))
        .and_then(|()| Ok(fs::rename(&unfinished, &packed)?));
    if let Err(bad) = done {
        let _ = fs::remove_file(&unfinished);
        // What is there should outlive a power cut all the same.
        from.sync_all()?;
        return if let Bad::Io(error) = bad { Err(error) } else { Ok(()) };
    }
    fs::remove_file(path)?;
    sync_dir_of(path)
}

/// A segment's file in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    pub number: u64,
    pub path: PathBuf,
    pub bytes: u64,
    pub compressed: bool,
}

/// The segments of a directory, oldest first. While one is being compressed, both of its files may be there:
/// then the plain one comes after the compressed one.
pub fn list(dir: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((number, compressed)) = name.to_str().and_then(parse_name) else { continue };
        // Deleted meanwhile: not there.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file() {
            all.push(SegmentFile { number, path: entry.path(), bytes: meta.len(), compressed });
        }
    }
    all.sort_by_key(|file| (file.number, !file.compressed));
    Ok(all)
}

fn parse_name(name: &str) -> Option<(u64, bool)> {
    let (number, compressed) = match name.strip_suffix(".tape.z") {
        Some(number) => (number, true),
        None => (name.strip_suffix(".tape")?, false),
    };
    let digits =
        NUMBER_DIGITS.contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| number.parse().ok().map(|number| (number, compressed)))?
}

/// The recorder's view of the directory.
pub struct Ring {
    dir: PathBuf,
    max_bytes: u64,
    jobs: Vec<TapeJob>,
}

impl Ring {
    /// Segments that an earlier process left open will be compressed. Less than 1 MiB counts as 1 MiB.
    pub fn open(dir: &Path, max_bytes: u64) -> Ring {
        let left = list(dir).unwrap_or_default();
        let jobs = (left.into_iter().filter(|file| !file.compressed))
            .map(|file| TapeJob::Compress(file.path))
            .collect();
        Ring { dir: dir.into(), max_bytes: max_bytes.max(TAPE_BYTES_MIN), jobs }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn segment_bytes(&self) -> u64 {
        self.max_bytes / SEGMENTS_MIN
    }

    /// A new file after all others, when there is room for a snapshot and the steps after it.
    pub fn create(&mut self, snapshot_bytes: u64) -> io::Result<(File, PathBuf)> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let files = list(&self.dir)?;
        let next = files.last().map_or(1, |file| file.number + 1);
        // Once more the steps: a compressed copy of the segment before may be in the making.
        self.make_room(files, snapshot_bytes + 2 * self.segment_bytes())?;
        // A directory or a link may have the name.
        for number in next..next + NAMES_TRIED {
            let path = self.dir.join(format!("{number:08}.tape"));
            match create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return Ok((made?, path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn make_room(&self, files: Vec<SegmentFile>, wanted: u64) -> io::Result<()> {
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if total + wanted <= self.max_bytes {
                break;
            }
            match fs::remove_file(&file.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total -= file.bytes,
            }
        }
        Ok(())
    }

    /// Takes back a file that `create` gave.
    pub fn discard(&self, path: &Path) {
        let _ = fs::remove_file(path);
    }

    /// The segment is whole now.
    pub fn closed(&mut self, path: PathBuf) {
        self.jobs.push(TapeJob::Compress(path));
    }

    pub fn sync(&mut self, path: PathBuf) {
        self.jobs.push(TapeJob::Sync(path));
    }

    pub fn jobs(&mut self) -> Vec<TapeJob> {
        std::mem::take(&mut self.jobs)
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    #[test]
    fn names_that_are_taken_are_passed_over() {
        let scratch = Scratch::new("ring");
        let dir = scratch.path();
        fs::write(dir.join("18446744073709551615.tape"), "x").unwrap();
        fs::write(dir.join("00000007.tape"), "x").unwrap();
        fs::create_dir(dir.join("00000008.tape")).unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.join("00000009.tape")).unwrap();
        let (_, path) = Ring::open(dir, 1 << 20).create(0).unwrap();
        assert_eq!(path, dir.join("00000010.tape"));
    }
}

//! Where the last lines of a file begin, found from its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes looked at in one step.
const BLOCK: u64 = 64 * 1024;

pub struct Tail {
    /// Line breaks that are still to be passed, the one behind the last line included.
    breaks: u64,
    /// Everything from here on has been looked at.
    from: u64,
}

impl Tail {
    /// For a file of `size` bytes.
    pub fn new(lines: u64, size: u64) -> Tail {
        Tail { breaks: lines.saturating_add(1), from: size }
    }

    /// Looks at one block. The offset is there when it is found.
    pub fn step(&mut self, file: &File) -> io::Result<Option<u64>> {
        let size = self.from.min(BLOCK);
        let from = self.from - size;
        let mut block = vec![0; size as usize];
        match file.read_exact_at(&mut block, from) {
            // The file was cut short meanwhile: what is left is read from its beginning.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
            other => other?,
        }
        self.from = from;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
            self.breaks -= 1;
            if self.breaks == 0 {
                return Ok(Some(from + at as u64 + 1));
            }
        }
        Ok((from == 0).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;

    #[test]
    fn beginnings_of_last_lines() {
        let scratch = Scratch::new("tail");
        let path = scratch.path().join("0.log");
        let check = |text: &str, lines, want: u64, steps: usize| {
            std::fs::write(&path, text).unwrap();
            let file = File::open(&path).unwrap();
            let mut tail = Tail::new(lines, text.len() as u64);
            let mut found = std::iter::from_fn(|| Some(tail.step(&file).unwrap()));
            let at = found.position(|f| f.is_some_and(|offset| offset == want));
            assert_eq!(at, Some(steps - 1), "{lines} of {} bytes", text.len());
        };
        check("", 1, 0, 1);
        check("a\nb\n", 0, 4, 1);
        check("a\nb\n", 1, 2, 1);
        check("a\nb\n", 2, 0, 1);
        check("a\nb\n", u64::MAX, 0, 1);
        // As upstream: the last line break is what counts, not what stands behind it.
        check("a\nb", 1, 0, 1);
        check("a\nb", 0, 2, 1);
        let block = BLOCK as usize;
        let long = format!("a\n{}\nb\n", "x".repeat(3 * block));
        check(&long, 1, long.len() as u64 - 2, 1);
        check(&long, 2, 2, 4);
        check(&"\n".repeat(2 * block), block as u64, BLOCK, 2);
    }
}

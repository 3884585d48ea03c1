//! An answer as it comes: one body, or the lines of a watch.

use bytes::Bytes;
use steplet_core::event::ApiReply;
use steplet_core::time::Span;
use steplet_wire::http2::client::Head;

/// Bytes of one answer, and of one line of a watch. A list of a thousand pods has a third of it.
pub const BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub struct Answer {
    status: u16,
    retry_after: Option<Span>,
    /// Each line is told as it comes.
    lines: bool,
    bytes: Vec<u8>,
}

impl Answer {
    /// `watch`: a good answer comes in lines. Errors: why nothing can be made of it, for people.
    pub fn head(&mut self, head: &Head, watch: bool) -> Result<(), String> {
        self.status = head.status;
        self.retry_after = head.retry_after_seconds.map(Span::from_secs);
        self.lines = watch && (200..300).contains(&head.status);
        if (300..400).contains(&head.status) {
            return Err(format!(
                "it answers with a redirect ({}), which is not followed: is the kubeconfig's \
                 server an API server?",
                head.status
            ));
        }
        match &head.encoding {
            None => Ok(()),
            Some(encoding) => {
                Err(format!("its answer is encoded as {encoding:?}, which was not asked for"))
            }
        }
    }

    /// Bytes that are held.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the lines that are whole now. Errors: it is too long.
    pub fn data(&mut self, mut data: &[u8]) -> Result<Vec<Bytes>, String> {
        let mut lines = Vec::new();
        while self.lines
            && let Some(end) = data.iter().position(|byte| *byte == b'\n')
        {
            self.take(&data[..end])?;
            data = &data[end + 1..];
            let line = Bytes::from(std::mem::take(&mut self.bytes));
            if !line.is_empty() {
                lines.push(line);
            }
        }
        self.take(data)?;
        Ok(lines)
    }

    fn take(&mut self, data: &[u8]) -> Result<(), String> {
        if data.len() > BYTES_MAX - self.bytes.len() {
            let what = if self.lines { "a line of its watch" } else { "its answer" };
            return Err(format!("{what} is longer than {BYTES_MAX} bytes"));
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The server has said that it is whole. Errors: a watch that ended within a line.
    pub fn end(self) -> Result<ApiReply, String> {
        if self.lines && !self.bytes.is_empty() {
            return Err("its watch ended within a line".into());
        }
        let Answer { status, retry_after, bytes, .. } = self;
        Ok(ApiReply { status, retry_after, body: bytes.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16) -> Head {
        Head { status, ..Head::default() }
    }

    #[test]
    fn lines_of_a_watch_in_all_pieces() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\r\n{}\n";
        for step in 1..=text.len() {
            let mut answer = Answer::default();
            answer.head(&head(200), true).unwrap();
            let lines = text.chunks(step).flat_map(|piece| answer.data(piece).unwrap());
            assert_eq!(lines.collect::<Vec<_>>(), ["{\"a\":1}", "{\"b\":2}\r", "{}"]);
            assert_eq!(answer.end(), Ok(ApiReply { status: 200, ..ApiReply::default() }));
        }
        let mut cut = Answer::default();
        cut.head(&head(200), true).unwrap();
        cut.data(b"{\"a\"").unwrap();
        assert_eq!(cut.end(), Err("its watch ended within a line".into()));
    }

    #[test]
    fn a_refused_watch_is_one_answer() {
        let mut answer = Answer::default();
        let head = Head { retry_after_seconds: Some(3), ..head(429) };
        answer.head(&head, true).unwrap();
        assert_eq!(answer.data(b"{\n}\n").unwrap(), Vec::<Bytes>::new());
        let (retry_after, body) = (Some(Span::from_secs(3)), Bytes::from_static(b"{\n}\n"));
        assert_eq!(answer.end(), Ok(ApiReply { status: 429, retry_after, body }));
    }

    #[test]
    fn what_cannot_be_taken() {
        let check = |head: Head, want: &str| {
            let why = Answer::default().head(&head, false).unwrap_err();
            assert!(why.contains(want), "{why}");
        };
        check(head(302), "a redirect (302)");
        check(Head { encoding: Some("gzip".into()), ..head(200) }, "\"gzip\"");
        let mut long = Answer::default();
        long.head(&head(200), false).unwrap();
        let mebibyte = vec![b'x'; 1 << 20];
        (0..32).for_each(|_| assert!(long.data(&mebibyte).is_ok()));
        assert!(long.data(b"x").unwrap_err().contains("longer than 33554432"));
    }
}

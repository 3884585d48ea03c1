//! The head of an answer over HTTP/1.1, as a client reads it.

/// A whole head, and where it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    pub status: u16,
    /// All header lines whose value is text, as they came.
    pub headers: Vec<(String, String)>,
    /// Bytes of the head, with the empty line.
    pub length: usize,
}

/// What comes is no answer of HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

const HEADERS_MAX: usize = 64;

impl AnswerHead {
    /// Takes a head from the front of `bytes`; None while it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Option<AnswerHead>, NoAnswer> {
        let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut slots);
        let parsed = response.parse(bytes).map_err(|_| NoAnswer)?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let text = |header: &httparse::Header<'_>| {
            let value = std::str::from_utf8(header.value).ok()?;
            Some((header.name.to_owned(), value.to_owned()))
        };
        let headers = response.headers.iter().filter_map(text).collect();
        Ok(Some(AnswerHead { status: response.code.ok_or(NoAnswer)?, headers, length }))
    }

    /// Bytes of the body, if the head says so.
    pub fn content_length(&self) -> Option<usize> {
        let mut named =
            self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        named.next()?.1.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_answers() {
        let check = |text: &str, want: Result<Option<(u16, Option<usize>, usize)>, NoAnswer>| {
            let got = AnswerHead::parse(text.as_bytes());
            let got = got.map(|it| it.map(|it| (it.status, it.content_length(), it.length)));
            assert_eq!(got, want, "{text:?}");
        };
        check("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nmore", Ok(Some((101, None, 38))));
        check("HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nhello", Ok(Some((404, Some(5), 38))));
        check("HTTP/1.1 200 OK\r\n", Ok(None));
        check("", Ok(None));
        check("SSH-2.0-x\r\n\r\n", Err(NoAnswer));
    }
}

//! What is answered.

use std::fmt::Write as _;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    status: u16,
    content_type: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: String,
}

impl Response {
    /// What was asked for.
    #[must_use]
    pub fn new(content_type: &'static str, body: impl Into<String>) -> Self {
        Self {
            status: 200,
            content_type,
            headers: &[],
            body: body.into(),
        }
    }

    /// What is wrong, in a line: 400, 403, 404, 405, 431, 503 or 505.
    #[must_use]
    pub fn refusal(status: u16) -> Self {
        let headers: &[(&str, &str)] = match status {
            405 => &[("Allow", "GET, HEAD")],
            _ => &[],
        };
        Self {
            status,
            headers,
            ..Self::new(
                "text/plain; charset=utf-8",
                format!("{status} {}\n", reason(status)),
            )
        }
    }

    /// With these headers, instead of others that were asked for.
    #[must_use]
    pub const fn with(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    /// As it goes to the client.
    pub(crate) fn bytes(&self, head_only: bool) -> Vec<u8> {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len(),
        );
        for (name, value) in self.headers {
            // Writing into a string cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
        if !head_only {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(response: &Response, head_only: bool) -> String {
        String::from_utf8(response.bytes(head_only)).expect("text")
    }

    #[test]
    fn responses_are_whole() {
        let response = Response::new("text/plain", "abc").with(&[("X-Test", "yes")]);
        let whole = text(&response, false);
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("\r\n\r\nabc"));
        assert!(
            whole.contains("\r\nContent-Length: 3\r\n") && whole.contains("\r\nX-Test: yes\r\n")
        );
        let head = text(&response, true);
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
        assert!(text(&Response::refusal(405), false).contains("\r\nAllow: GET, HEAD\r\n"));
    }
}

//! Requests and responses of HTTP, as little of it as scrapers and `curl` need.
//!
//! Contract: one request a connection, `GET` and `HEAD` only, and no body is ever read. What is
//! longer than [`MOST_REQUEST`] is refused.

/// Longest head of a request in bytes.
pub(super) const MOST_REQUEST: usize = 8 * 1024;

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// The head is not complete yet.
    Partial,
    /// This path; only the head of the answer if so.
    Get { path: &'a str, head_only: bool },
    /// Something else, which gets this status.
    Bad(u16),
}

/// Reads as much of a request as has come.
pub(super) fn parse(bytes: &[u8]) -> Request<'_> {
    let complete = bytes.windows(4).any(|window| window == b"\r\n\r\n")
        || bytes.windows(2).any(|window| window == b"\n\n");
    if !complete {
        return if bytes.len() >= MOST_REQUEST {
            Request::Bad(431)
        } else {
            Request::Partial
        };
    }
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let Ok(line) = str::from_utf8(line) else {
        return Request::Bad(400);
    };
    let words = line.trim_end().split(' ').collect::<Vec<_>>();
    let [method, target, version] = words[..] else {
        return Request::Bad(400);
    };
    if !version.starts_with("HTTP/1.") {
        return Request::Bad(505);
    }
    let path = target.split('?').next().unwrap_or(target);
    match method {
        "GET" | "HEAD" => Request::Get {
            path,
            head_only: method == "HEAD",
        },
        _ => Request::Bad(405),
    }
}

/// A whole response.
pub(super) fn response(status: u16, content_type: &str, body: &str, head_only: bool) -> Vec<u8> {
    let allow = if status == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        reason(status),
        body.len(),
    );
    let mut bytes = head.into_bytes();
    if !head_only {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

/// A response that tells what is wrong.
pub(super) fn refusal(status: u16) -> Vec<u8> {
    let text = format!("{status} {}\n", reason(status));
    response(status, "text/plain; charset=utf-8", &text, false)
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
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

    #[test]
    fn requests_are_read() {
        let get = |path, head_only| Request::Get { path, head_only };
        assert_eq!(
            parse(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            get("/metrics", false)
        );
        assert_eq!(parse(b"HEAD /a?b=c HTTP/1.0\r\n\r\n"), get("/a", true));
        assert_eq!(parse(b"GET /a HTTP/1.0\n\n"), get("/a", false));
        for partial in [&b""[..], b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n"] {
            assert_eq!(parse(partial), Request::Partial);
        }
        assert_eq!(parse(b"POST / HTTP/1.1\r\n\r\n"), Request::Bad(405));
        assert_eq!(parse(b"GET / HTTP/2\r\n\r\n"), Request::Bad(505));
        assert_eq!(parse(b"GET /\r\n\r\n"), Request::Bad(400));
        assert_eq!(parse(b"\xff\xff\xff\r\n\r\n"), Request::Bad(400));
        assert_eq!(parse(&[b'x'; MOST_REQUEST]), Request::Bad(431));
    }

    #[test]
    fn responses_are_whole() {
        let text = String::from_utf8(response(200, "text/plain", "abc", false)).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nabc"));
        assert!(text.contains("Content-Length: 3\r\n"));
        let head = String::from_utf8(response(200, "text/plain", "abc", true)).expect("text");
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
        assert!(
            String::from_utf8(refusal(405))
                .expect("text")
                .contains("Allow: GET, HEAD")
        );
    }
}

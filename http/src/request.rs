//! What clients ask for.

/// Longest head of a request in bytes.
pub(crate) const MOST_REQUEST: usize = 8 * 1024;
/// Most header fields of a request.
const MOST_FIELDS: usize = 64;

/// A request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path, as it was sent; without what stands behind a question mark.
    pub path: &'a str,
    /// Whom the client takes us for: the `Host` field.
    pub host: Option<&'a str>,
    /// Whether only the head of the answer is wanted.
    pub(crate) head_only: bool,
}

/// What has come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// The head is not complete yet.
    Partial,
    /// This.
    For(Request<'a>),
    /// Something else, which gets this status.
    Bad(u16),
}

/// Reads as much of a request as has come.
pub(crate) fn parse(bytes: &[u8]) -> Asked<'_> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_REQUEST => return Asked::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Asked::Bad(431);
        }
        Err(httparse::Error::Version) => return Asked::Bad(505),
        Err(_) => return Asked::Bad(400),
    }
    let (method, target) = (head.method.unwrap_or(""), head.path.unwrap_or(""));
    if !matches!(method, "GET" | "HEAD") {
        return Asked::Bad(405);
    }
    let mut hosts = head
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|field| str::from_utf8(field.value));
    let (Ok(host), None) = (host.transpose(), hosts.next()) else {
        return Asked::Bad(400);
    };
    Asked::For(Request {
        path: target.split('?').next().unwrap_or(target),
        host,
        head_only: method == "HEAD",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &'static str, host: Option<&'static str>, head_only: bool) -> Asked<'static> {
        Asked::For(Request {
            path,
            host,
            head_only,
        })
    }

    #[test]
    fn requests_are_read() {
        assert_eq!(
            parse(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            get("/metrics", Some("x"), false)
        );
        assert_eq!(
            parse(b"HEAD /a?b=c HTTP/1.0\r\n\r\n"),
            get("/a", None, true)
        );
        assert_eq!(parse(b"GET /a HTTP/1.0\n\n"), get("/a", None, false));
        for partial in [&b""[..], b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n"] {
            assert_eq!(parse(partial), Asked::Partial);
        }
    }

    #[test]
    fn what_is_no_request_for_a_page_is_refused() {
        for (request, status) in [
            (&b"POST / HTTP/1.1\r\n\r\n"[..], 405),
            (b"GET / HTTP/2\r\n\r\n", 505),
            (b"GET /\r\n\r\n", 400),
            (b"\xff\xff\xff\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", 400),
            (&[b'x'; MOST_REQUEST], 431),
        ] {
            assert_eq!(parse(request), Asked::Bad(status));
        }
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(MOST_FIELDS + 1)
        );
        assert_eq!(parse(many.as_bytes()), Asked::Bad(431));
    }
}

//! Exact bytes over a socket: what no polite client would send, and answers as
//! they really came.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An HTTP answer, read to its end or to where it broke.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// 0 if no status line came.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body without its chunking.
    pub body: Vec<u8>,
    /// Whether the body ended as its framing said.
    pub whole: bool,
}

impl Answer {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One request that we may write as we like.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    chunked: bool,
}

impl Request {
    /// A GET.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A POST with a body and its length.
    pub fn post(path: &str, body: Vec<u8>) -> Self {
        Self { body, ..Self::new("POST", path) }
    }

    /// A fetch or ls-refs POST: `path` is the repository's.
    pub fn upload_pack(path: &str, body: Vec<u8>) -> Self {
        Self::post(&format!("{path}/git-upload-pack"), body)
            .header("Content-Type", "application/x-git-upload-pack-request")
            .header("Accept", "application/x-git-upload-pack-result")
    }

    /// A GET of the upload-pack advertisement.
    pub fn refs(path: &str) -> Self {
        Self::get(&format!("{path}/info/refs?service=git-upload-pack"))
    }

    /// Any method.
    pub fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, headers: Vec::new(), body: Vec::new(), chunked: false }
    }

    /// One more header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `Git-Protocol: version=2`.
    pub fn v2(self) -> Self {
        self.header("Git-Protocol", "version=2")
    }

    /// Sends the body chunked.
    pub fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// The bytes that go out.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            let _ = write!(head, "Host: {host}\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n");
        } else if !self.body.is_empty() || self.method == "POST" {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        head.push_str("Connection: close\r\n\r\n");
        let mut bytes = head.into_bytes();
        if self.chunked {
            for piece in self.body.chunks(4096) {
                bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }

    /// Sends it and reads the answer.
    pub fn send(&self, to: SocketAddr) -> Answer {
        exchange(to, &self.bytes(&to.to_string()))
    }
}

/// Sends these bytes on a new connection and reads one answer.
pub fn exchange(to: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(to);
    let mut writer = stream.try_clone().expect("a socket is cloned");
    let sent = bytes.to_vec();
    // A server may refuse and stop reading before all is sent.
    let sending = std::thread::spawn(move || drop(writer.write_all(&sent)));
    let answer = read_answer(&mut stream);
    drop(stream);
    let _ = sending.join();
    answer
}

/// A connection with deadlines.
pub fn connect(to: SocketAddr) -> TcpStream {
    let stream =
        TcpStream::connect_timeout(&to, Duration::from_secs(10)).expect("the server takes a connection");
    let limit = Some(Duration::from_secs(40));
    stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)).expect("deadlines are set");
    stream
}

/// Reads one answer from a connection.
pub fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 16 * 1024];
    let head_end = loop {
        // An interim answer (100) is not the answer.
        if let Some(end) = end_of_head(&bytes) {
            if bytes.starts_with(b"HTTP/1.1 1") {
                bytes.drain(..end + 4);
                continue;
            }
            break end;
        }
        match stream.read(&mut chunk) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&chunk[..count]),
            _ => return Answer::default(),
        }
    };
    let mut answer = head(&bytes[..head_end]);
    let mut body = bytes.split_off(head_end + 4);
    let length = answer.header("content-length").and_then(|text| text.parse::<usize>().ok());
    let chunked = answer.header("transfer-encoding").is_some_and(|text| text.contains("chunked"));
    let done = |body: &[u8]| match length {
        Some(length) => body.len() >= length,
        None => chunked && body.ends_with(b"0\r\n\r\n") && unchunk(body).1,
    };
    let mut ended = false;
    while !done(&body) {
        match stream.read(&mut chunk) {
            Ok(count) if count > 0 => body.extend_from_slice(&chunk[..count]),
            Ok(_) => {
                ended = true;
                break;
            }
            Err(_) => break,
        }
    }
    answer.whole = done(&body) || (ended && length.is_none() && !chunked);
    answer.body = if chunked { unchunk(&body).0 } else { body };
    answer
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n")
}

fn head(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Answer { status, headers, ..Answer::default() }
}

fn unchunk(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let digits = String::from_utf8_lossy(&bytes[..end]);
        let Ok(size) = usize::from_str_radix(digits.split(';').next().unwrap_or_default().trim(), 16) else {
            break;
        };
        if size == 0 {
            return (body, true);
        }
        let Some(piece) = bytes.get(end + 2..end + 2 + size) else {
            body.extend_from_slice(&bytes[end + 2..]);
            break;
        };
        body.extend_from_slice(piece);
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
    (body, false)
}

//! A tunnel through an egress proxy: `CONNECT host:port`, RFC 9110 section
//! 9.3.6.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::egress::Proxy;

/// Longest head of an answer.
const HEAD: usize = 16 * 1024;

/// Asks for a tunnel. The error says what the proxy did, as the end of a
/// sentence.
pub(super) async fn open(stream: &mut TcpStream, proxy: &Proxy, host: &str, port: u16) -> Result<(), String> {
    let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n").into_bytes();
    if let Some(value) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(|error| format!("broke off: {error}"))?;

    let mut head = Vec::with_capacity(1024);
    let mut chunk = [0; 1024];
    loop {
        let read = stream.read(&mut chunk).await.map_err(|error| format!("broke off: {error}"))?;
        if read == 0 {
            return Err("closed the connection".to_owned());
        }
        head.extend_from_slice(&chunk[..read]);
        if let Some(at) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            return accepted(&head, at + 4);
        }
        if head.len() > HEAD {
            return Err("answered with an endless head".to_owned());
        }
    }
}

fn accepted(head: &[u8], end: usize) -> Result<(), String> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = line
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse::<u16>().ok());
    match status {
        // In TLS the client speaks first: more bytes are not the upstream's.
        Some(200..=299) if head.len() > end => Err("sent more than its answer".to_owned()),
        Some(200..=299) => Ok(()),
        Some(407) => Err("wants a user name and password".to_owned()),
        Some(status) => Err(format!("refused the tunnel with status {status}")),
        None => Err("does not speak HTTP".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clean_2xx_is_a_tunnel() {
        for (head, good) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\n\r\nextra", false),
            ("HTTP/1.1 407 No\r\n\r\n", false),
            ("HTTP/1.1 503\r\n\r\n", false),
            ("SSH-2.0-x\r\n\r\n", false),
            ("HTTP/1.\r\n\r\n", false),
        ] {
            let end = head.find("\r\n\r\n").unwrap() + 4;
            assert_eq!(accepted(head.as_bytes(), end).is_ok(), good, "{head:?}");
        }
    }
}

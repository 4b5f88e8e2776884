//! The body of a protocol v2 request: a command, capabilities, arguments.
//!
//! ```text
//! 0014command=ls-refs\n
//! 0017object-format=sha1\n
//! 0001
//! 0009peel\n
//! 0000
//! ```
//!
//! The arguments stay bytes here; `ls_refs` and `fetch` read them.

use gix_hash::Kind;

use super::{
    capabilities::{Capabilities, Feature, UPSTREAM_AGENT},
    error::RequestError,
    pkt::{self, Packet, Reader, chomp},
};

/// The most capability lines a request may have.
const MOST_CAPABILITIES: usize = 1_000;

/// The commands we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Lists refs.
    LsRefs,
    /// Negotiates and sends a pack.
    Fetch,
}

/// A v2 request, its arguments not yet read.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub command: Command,
    /// What the client calls itself.
    pub agent: Option<&'a [u8]>,
    /// Options for the server's hooks; we have none.
    pub server_options: Vec<&'a [u8]>,
    /// What follows the capabilities, up to and including the flush.
    pub args: Reader<'a>,
}

/// Reads a request up to its arguments.
///
/// `None` is the request that asks nothing: an empty body, or the lone flush
/// with which git's client tries out its credentials before a big POST.
pub fn parse(body: &[u8], hash: Kind) -> Result<Option<Request<'_>>, RequestError> {
    let mut reader = Reader::new(body);
    let mut command = None;
    let mut agent = None;
    let mut server_options = Vec::new();
    let mut lines = 0;
    loop {
        let before = reader.clone();
        let line = match reader.packet()? {
            None | Some(Packet::Flush) if lines == 0 => return Ok(None),
            None => return Err(RequestError::Truncated),
            Some(Packet::Flush) => {
                // No arguments: the flush is theirs.
                reader = before;
                break;
            }
            Some(Packet::Delim) => break,
            Some(Packet::ResponseEnd) => return Err(RequestError::Marker),
            Some(Packet::Data(line)) => chomp(line),
        };
        lines += 1;
        if lines > MOST_CAPABILITIES {
            return Err(RequestError::TooMany { what: "capabilities", most: MOST_CAPABILITIES });
        }
        if let Some(name) = line.strip_prefix(b"command=") {
            let known = match name {
                b"ls-refs" => Command::LsRefs,
                b"fetch" => Command::Fetch,
                _ => return Err(RequestError::Command(pkt::shown(name))),
            };
            if command.replace(known).is_some() {
                return Err(RequestError::NotOneCommand);
            }
        } else if let Some(name) = line.strip_prefix(b"agent=") {
            agent = Some(name);
        } else if let Some(option) = line.strip_prefix(b"server-option=") {
            server_options.push(option);
        } else if let Some(format) = line.strip_prefix(b"object-format=") {
            check_format(format, hash)?;
        }
        // Other capabilities (session-id) ask for nothing.
    }
    let command = command.ok_or(RequestError::NotOneCommand)?;
    Ok(Some(Request { command, agent, server_options, args: reader }))
}

/// Refuses a client that thinks in another hash than the repository.
pub(super) fn check_format(format: &[u8], hash: Kind) -> Result<(), RequestError> {
    if format == hash.to_string().as_bytes() {
        return Ok(());
    }
    Err(RequestError::ObjectFormat { ours: hash.to_string(), theirs: pkt::shown(format) })
}

/// Starts a request to an upstream: everything up to its arguments.
pub(super) fn start(command: &str, upstream: &Capabilities) -> Vec<u8> {
    let mut out = Vec::new();
    pkt::line(&mut out, &[b"command=", command.as_bytes()]);
    if upstream.has(Feature::Agent) {
        pkt::line(&mut out, &[b"agent=", UPSTREAM_AGENT.as_bytes()]);
    }
    if upstream.has(Feature::ObjectFormat) {
        pkt::line(&mut out, &[b"object-format=", upstream.object_format().to_string().as_bytes()]);
    }
    pkt::delim(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match *line {
                "|" => pkt::delim(&mut out),
                "." => pkt::flush(&mut out),
                line => pkt::line(&mut out, &[line.as_bytes()]),
            }
        }
        out
    }

    #[test]
    fn a_probe_asks_for_nothing() {
        assert!(parse(b"", Kind::Sha1).unwrap().is_none());
        assert!(parse(b"0000", Kind::Sha1).unwrap().is_none());
    }

    #[test]
    fn a_command_keeps_its_arguments_for_later() {
        let body = body(&["agent=git/2.47", "command=fetch", "server-option=x", "|", "done", "."]);
        let found = parse(&body, Kind::Sha1).unwrap().unwrap();
        assert_eq!((found.command, found.agent), (Command::Fetch, Some(&b"git/2.47"[..])));
        assert_eq!((found.server_options, found.args.rest()), (vec![&b"x"[..]], &b"0009done\n0000"[..]));
    }

    #[test]
    fn a_command_without_arguments_still_ends_with_a_flush() {
        let body = body(&["command=ls-refs", "object-format=sha1", "."]);
        assert_eq!(parse(&body, Kind::Sha1).unwrap().unwrap().args.rest(), b"0000");
    }

    #[test]
    fn what_cannot_be_a_request_is_refused() {
        let refusal = |lines: &[&str]| parse(&body(lines), Kind::Sha1).unwrap_err();
        assert_eq!(refusal(&["agent=x", "."]), RequestError::NotOneCommand);
        assert_eq!(refusal(&["command=fetch", "command=ls-refs", "."]), RequestError::NotOneCommand);
        assert_eq!(refusal(&["command=object-info", "."]), RequestError::Command("object-info".into()));
        assert_eq!(refusal(&["command=fetch"]), RequestError::Truncated);
        let text = refusal(&["command=fetch", "object-format=sha256", "."]).to_string();
        assert_eq!(text, "mismatched object format: the repository has sha1, the request says sha256");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Kind::Sha1);
        }
    }
}

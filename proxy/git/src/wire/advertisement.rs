//! The answer to `GET .../info/refs?service=git-upload-pack`, both ways.
//!
//! ```text
//! 001e# service=git-upload-pack\n
//! 0000
//! 00b1<oid> HEAD\0multi_ack thin-pack ... symref=HEAD:refs/heads/main agent=git/2.39.5\n
//! 003d<oid> refs/heads/main\n
//! 003e<oid> refs/tags/v1\n
//! 0041<oid> refs/tags/v1^{}\n
//! 0000
//! ```
//!
//! Grammar: gitprotocol-http(5), gitprotocol-pack(5); v2: gitprotocol-v2(5).

use gix_hash::{Kind, ObjectId};

use super::{
    capabilities::{self, Capabilities, Symref},
    error::AnswerError,
    object_id,
    pkt::{self, Packet, Reader, chomp},
    protocol::Version,
    split_word,
};
use crate::refs::{BadRefs, Builder, Head, Ref, RefName, RefTable};

const SERVICE: &[u8] = b"# service=git-upload-pack";

/// What an upstream answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// What the upstream can do, and which version it speaks.
    pub capabilities: Capabilities,
    /// V0 and v1: all refs. V2 lists them only when asked.
    pub refs: Option<RefTable>,
    /// Where the upstream's own history is cut.
    pub shallow: Vec<ObjectId>,
}

/// Our answer to a client that speaks v0 or v1.
///
/// `hide` leaves refs out; HEAD is shown as it is, as git does.
pub fn encode(table: &RefTable, version: Version, hide: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(512 + 64 * table.refs().len());
    pkt::line(&mut out, &[SERVICE]);
    pkt::flush(&mut out);
    if version == Version::V1 {
        pkt::line(&mut out, &[b"version 1"]);
    }
    let born = table.head().and_then(|head| head.oid().map(|oid| (head, oid)));
    let mut words = Some(capabilities::own_words(table.hash(), born.and_then(|(head, _)| head.target())));
    let mut put = |oid: ObjectId, name: &[u8]| {
        let mut hex = Kind::hex_buf();
        let hex = oid.hex_to_buf(&mut hex).as_bytes();
        match words.take() {
            Some(words) => pkt::line(&mut out, &[hex, b" ", name, b"\0", &words]),
            None => pkt::line(&mut out, &[hex, b" ", name]),
        }
    };
    if let Some((_, oid)) = born {
        put(oid, b"HEAD");
    }
    for entry in table.refs().iter().filter(|entry| !hide(&entry.name)) {
        put(entry.oid, &entry.name);
        if let Some(peeled) = entry.peeled {
            put(peeled, &[&entry.name, &b"^{}"[..]].concat());
        }
    }
    if words.is_some() {
        let nothing = ObjectId::null(table.hash()).to_string();
        let words = words.unwrap_or_default();
        pkt::line(&mut out, &[nothing.as_bytes(), b" capabilities^{}\0", &words]);
    }
    pkt::flush(&mut out);
    out
}

/// Our answer to a client that speaks v2; refs are asked for later.
pub fn encode_v2(hash: Kind) -> Vec<u8> {
    let mut out = Vec::new();
    pkt::line(&mut out, &[b"version 2"]);
    for line in capabilities::own_lines(hash) {
        pkt::line(&mut out, &[line.as_bytes()]);
    }
    pkt::flush(&mut out);
    out
}

/// Reads an upstream's whole answer, of any version, strictly to its end.
pub fn parse(body: &[u8]) -> Result<Advertisement, AnswerError> {
    if body.is_empty() {
        return Err(AnswerError::Empty);
    }
    if is_html(body) {
        return Err(AnswerError::Html);
    }
    let mut lines = Lines { reader: Reader::new(body) };
    let mut first = lines.next()?;
    let announced = first == Some(SERVICE);
    if announced {
        if lines.next()?.is_some() {
            return Err(AnswerError::Line("a line where the service line's flush belongs".to_owned()));
        }
        first = lines.next()?;
    }
    let advertisement = match first {
        // Some servers say nothing at all about a repository without refs.
        None if announced => refs(Version::V0, None, &mut lines)?,
        None => return Err(AnswerError::Empty),
        Some(b"version 2") => v2(&mut lines)?,
        Some(b"version 1") => {
            let first = lines.next()?;
            refs(Version::V1, first, &mut lines)?
        }
        Some(line) if line.starts_with(b"version ") => return Err(AnswerError::Version(pkt::shown(line))),
        Some(line) => refs(Version::V0, Some(line), &mut lines)?,
    };
    match lines.reader.rest().len() {
        0 => Ok(advertisement),
        more => Err(AnswerError::Trailing(more)),
    }
}

/// Whether an answer is a web page.
pub(super) fn is_html(body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).starts_with(b"<")
}

/// Lines up to a flush; an `ERR` packet is an error wherever it comes.
pub(super) struct Lines<'a> {
    pub(super) reader: Reader<'a>,
}

impl<'a> Lines<'a> {
    /// The next line, or `None` for the flush.
    pub(super) fn next(&mut self) -> Result<Option<&'a [u8]>, AnswerError> {
        match self.reader.packet()? {
            None => Err(AnswerError::Truncated),
            Some(Packet::Flush) => Ok(None),
            Some(Packet::Delim | Packet::ResponseEnd) => Err(AnswerError::Marker),
            Some(Packet::Data(payload)) => match pkt::error_text(payload) {
                Some(text) => Err(AnswerError::Remote(text)),
                None => Ok(Some(chomp(payload))),
            },
        }
    }
}

fn v2(lines: &mut Lines<'_>) -> Result<Advertisement, AnswerError> {
    let mut found = Capabilities::new(Version::V2, Kind::Sha1);
    while let Some(line) = lines.next()? {
        found.parse_line(line)?;
    }
    Ok(Advertisement { capabilities: found, refs: None, shallow: Vec::new() })
}

fn refs<'a>(
    version: Version,
    first: Option<&'a [u8]>,
    lines: &mut Lines<'a>,
) -> Result<Advertisement, AnswerError> {
    let Some(first) = first else {
        let capabilities = Capabilities::new(version, Kind::Sha1);
        return Ok(Advertisement {
            capabilities,
            refs: Some(RefTable::empty(Kind::Sha1)),
            shallow: Vec::new(),
        });
    };
    let (first, words) = match first.iter().position(|byte| *byte == 0) {
        Some(at) => (&first[..at], &first[at + 1..]),
        None => (first, &b""[..]),
    };
    let (capabilities, symrefs) = Capabilities::parse_words(version, words)?;
    let mut list = List::new(capabilities.object_format());
    list.line(first)?;
    while let Some(line) = lines.next()? {
        list.line(line)?;
    }
    let (refs, shallow) = list.finish(symrefs)?;
    Ok(Advertisement { capabilities, refs: Some(refs), shallow })
}

/// A v0 ref list on its way to becoming a table.
struct List {
    hash: Kind,
    head: Option<ObjectId>,
    builder: Builder,
    shallow: Vec<ObjectId>,
    /// Nothing but `capabilities^{}` may stand in a list that has it.
    nothing: bool,
    lines: usize,
}

impl List {
    fn new(hash: Kind) -> Self {
        Self { hash, head: None, builder: Builder::new(hash), shallow: Vec::new(), nothing: false, lines: 0 }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), AnswerError> {
        let bad = || AnswerError::Line(pkt::shown(line));
        let (hex, name) = split_word(line);
        if hex == b"shallow" {
            self.shallow.push(object_id(name, self.hash).ok_or_else(bad)?);
            return Ok(());
        }
        self.lines += 1;
        let oid = object_id(hex, self.hash).ok_or_else(bad)?;
        if !self.shallow.is_empty() || self.nothing {
            return Err(bad());
        }
        match name {
            b"HEAD" if self.head.is_none() => self.head = Some(oid),
            b"HEAD" => return Err(BadRefs::Twice("HEAD".to_owned()).into()),
            b"HEAD^{}" => {}
            b"capabilities^{}" if self.lines == 1 && oid.is_null() => self.nothing = true,
            _ => self.entry(oid, name).ok_or_else(bad)??,
        }
        Ok(())
    }

    /// A ref, or what the tag before it contains; `None` if that isn't before it.
    fn entry(&mut self, oid: ObjectId, name: &[u8]) -> Option<Result<(), AnswerError>> {
        if let Some(of) = name.strip_suffix(b"^{}") {
            let entry = self.builder.last_mut().filter(|entry| *entry.name == *of)?;
            return entry.peeled.replace(oid).is_none().then_some(Ok(()));
        }
        let added = RefName::new(name).map(|name| {
            self.builder.push(Ref { name, oid, peeled: None, symref: None });
        });
        Some(added.map_err(|bad| BadRefs::from(bad).into()))
    }

    fn finish(mut self, symrefs: Vec<Symref>) -> Result<(RefTable, Vec<ObjectId>), AnswerError> {
        let mut target = None;
        for symref in symrefs {
            if symref.name == b"HEAD" {
                target = Some(symref.target);
            } else if let Ok(name) = RefName::new(&symref.name) {
                self.builder.symref(name, symref.target);
            }
        }
        match (target, self.head) {
            (Some(target), Some(oid)) => self.builder.head(Head::Attached { target, oid }),
            (Some(target), None) => self.builder.head(Head::Unborn { target }),
            (None, Some(oid)) => self.builder.head(Head::Detached { oid }),
            (None, None) => {}
        }
        Ok((self.builder.build()?, self.shallow))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::capabilities::Feature, *};

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn oid(hex: &str) -> ObjectId {
        ObjectId::from_hex(hex.as_bytes()).unwrap()
    }

    fn name(text: &str) -> RefName {
        RefName::new(text.as_bytes()).unwrap()
    }

    fn table(head: Option<Head>) -> RefTable {
        let mut builder = Builder::new(Kind::Sha1);
        if let Some(head) = head {
            builder.head(head);
        }
        let tag = Ref { name: name("refs/tags/v1"), oid: oid(B), peeled: Some(oid(A)), symref: None };
        builder.push(tag);
        builder.push(Ref { name: name("refs/heads/main"), oid: oid(A), peeled: None, symref: None });
        builder.push(Ref { name: name("refs/pull/1/head"), oid: oid(B), peeled: None, symref: None });
        builder.build().unwrap()
    }

    fn attached() -> Head {
        Head::Attached { target: name("refs/heads/main"), oid: oid(A) }
    }

    fn show(body: &[u8]) -> String {
        body.escape_ascii().to_string().replace("\\n", "\n").replace(capabilities::AGENT, "<agent>")
    }

    fn all(_: &[u8]) -> bool {
        false
    }

    #[test]
    fn v0_is_what_git_would_say() {
        insta::assert_snapshot!(show(&encode(&table(Some(attached())), Version::V0, &all)), @r"
        001e# service=git-upload-pack
        0000014aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa HEAD\x00multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want allow-reachable-sha1-in-want no-done symref=HEAD:refs/heads/main filter object-format=sha1 agent=<agent>
        003daaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa refs/heads/main
        003ebbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb refs/pull/1/head
        003abbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb refs/tags/v1
        003daaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa refs/tags/v1^{}
        0000
        ");
    }

    #[test]
    fn v2_is_what_git_would_say() {
        insta::assert_snapshot!(show(&encode_v2(Kind::Sha1)), @r"
        000eversion 2
        0019agent=<agent>
        0013ls-refs=unborn
        0033fetch=shallow wait-for-done filter ref-in-want
        0012server-option
        0017object-format=sha1
        0000
        ");
    }

    #[test]
    fn what_is_written_is_read_back_for_every_head() {
        let heads = [Some(attached()), None, Some(Head::Detached { oid: oid(B) })];
        for version in [Version::V0, Version::V1] {
            for head in heads.clone() {
                let table = table(head);
                let found = parse(&encode(&table, version, &all)).unwrap();
                assert_eq!(found.refs.as_ref(), Some(&table));
                assert_eq!(found.capabilities.version(), version);
                assert!(found.capabilities.has(Feature::AllowReachable));
            }
        }
    }

    #[test]
    fn an_unborn_head_is_silent_in_v0() {
        let unborn = table(Some(Head::Unborn { target: name("refs/heads/gone") }));
        let body = encode(&unborn, Version::V0, &all);
        assert!(!show(&body).contains("HEAD"));
        assert_eq!(parse(&body).unwrap().refs.unwrap().head(), None);
    }

    #[test]
    fn an_empty_repository_shows_its_capabilities() {
        let body = encode(&RefTable::empty(Kind::Sha1), Version::V0, &all);
        assert!(
            show(&body).contains("0000000000000000000000000000000000000000 capabilities^{}\\x00multi_ack")
        );
        let found = parse(&body).unwrap();
        assert_eq!(found.refs, Some(RefTable::empty(Kind::Sha1)));
        assert!(found.capabilities.has(Feature::Filter));
    }

    #[test]
    fn hidden_refs_are_left_out_even_if_all_are() {
        let body =
            show(&encode(&table(Some(attached())), Version::V0, &|name| name.starts_with(b"refs/pull/")));
        assert!(!body.contains("refs/pull") && body.contains("refs/tags/v1^{}"));
        let body = show(&encode(&table(None), Version::V0, &|_| true));
        assert!(body.contains("capabilities^{}") && !body.contains("refs/heads/main"));
    }

    #[test]
    fn every_kind_of_broken_answer_has_its_own_error() {
        let whole = encode(&table(Some(attached())), Version::V0, &all);
        let with = |tail: &[u8]| parse(&[&whole[..], tail].concat());
        assert_eq!(parse(b""), Err(AnswerError::Empty));
        assert_eq!(parse(b"0000"), Err(AnswerError::Empty));
        assert_eq!(parse(b"\r\n <!DOCTYPE html>"), Err(AnswerError::Html));
        assert_eq!(parse(b"001e# service=git-upload-pack\n0000"), Err(AnswerError::Truncated));
        assert_eq!(with(b"x"), Err(AnswerError::Trailing(1)));
        assert_eq!(with(b"0000"), Err(AnswerError::Trailing(4)));
        assert_eq!(parse(b"0011ERR go away\n\n"), Err(AnswerError::Remote("go away".into())));
        assert!(matches!(parse(b"not found"), Err(AnswerError::Framing(_))));
        assert!(matches!(parse(b"000eversion 9\n0000"), Err(AnswerError::Version(_))));
    }

    #[test]
    fn a_service_line_before_v2_is_fine_and_a_second_one_is_not() {
        let service = b"001e# service=git-upload-pack\n0000";
        let hosted = [&service[..], &encode_v2(Kind::Sha1)].concat();
        assert_eq!(parse(&hosted), parse(&encode_v2(Kind::Sha1)));
        assert!(parse(&[&service[..], &hosted].concat()).is_err());
        let nothing = parse(&[&service[..], b"0000"].concat()).unwrap();
        assert_eq!(nothing.refs, Some(RefTable::empty(Kind::Sha1)));
    }

    #[test]
    fn a_sha256_repository_is_named_in_every_version() {
        let hex = "a".repeat(64);
        let mut v0 = Vec::new();
        pkt::line(&mut v0, &[hex.as_bytes(), b" HEAD\0multi_ack object-format=sha512"]);
        pkt::flush(&mut v0);
        assert_eq!(parse(&v0), Err(AnswerError::ObjectFormat("sha512".into())));
        assert_eq!(
            parse(b"000eversion 2\n0019object-format=sha512\n0000"),
            Err(AnswerError::ObjectFormat("sha512".into()))
        );
    }

    #[test]
    fn an_answer_cut_anywhere_is_no_answer() {
        for body in [encode(&table(Some(attached())), Version::V1, &all), encode_v2(Kind::Sha1)] {
            for end in 1..body.len() {
                assert_eq!(parse(&body[..end]), Err(AnswerError::Truncated), "cut at {end}");
            }
        }
    }

    #[test]
    fn lines_that_contradict_are_refused() {
        let try_lines = |lines: &[String]| {
            let mut body = Vec::new();
            for line in lines {
                pkt::line(&mut body, &[line.as_bytes()]);
            }
            pkt::flush(&mut body);
            parse(&body)
        };
        for lines in [
            vec![format!("{A} refs/heads/a"), format!("{A} refs/heads/a")],
            vec![format!("{A} HEAD"), format!("{A} HEAD")],
            vec![format!("{A} refs/heads/a"), format!("{A} refs/heads/b^{{}}")],
            vec![format!("{A} refs/heads/a"), format!("{A} capabilities^{{}}")],
            vec![format!("{A} refs/heads/a"), format!("shallow {A}"), format!("{A} refs/heads/b")],
            vec![format!("{} capabilities^{{}}", "0".repeat(40)), format!("{A} refs/heads/b")],
            vec!["aaaa refs/heads/a".to_owned()],
            vec![format!("{A} evil")],
        ] {
            assert!(try_lines(&lines).is_err(), "{lines:?}");
        }
        let found = try_lines(&[format!("{A} refs/heads/a"), format!("shallow {B}")]).unwrap();
        assert_eq!(found.shallow, [oid(B)]);
    }
}

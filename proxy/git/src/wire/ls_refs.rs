//! The `ls-refs` command of protocol v2, both ways.
//!
//! ```text
//! unborn HEAD symref-target:refs/heads/main
//! <oid> refs/tags/v1 peeled:<oid>
//! ```
//!
//! Grammar: gitprotocol-v2(5), section `ls-refs`.

use gix_hash::{Kind, ObjectId};

use super::{
    advertisement::{Lines, is_html},
    capabilities::{Capabilities, Feature},
    error::{AnswerError, RequestError},
    object_id,
    pkt::{self, Packet, Reader, chomp},
    request, split_word,
};
use crate::refs::{BadRefs, Builder, Head, LONGEST_NAME, Ref, RefName, RefTable};

/// More prefixes than this are as good as none: everything is listed.
pub const MOST_PREFIXES: usize = 64;

/// Which refs are asked for, and what about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Only refs that start with one of these; empty for all.
    pub prefixes: Vec<Vec<u8>>,
    /// What tags contain, too.
    pub peel: bool,
    /// Where symbolic refs lead, too.
    pub symrefs: bool,
    /// HEAD even if its branch has no commit.
    pub unborn: bool,
}

impl Request {
    /// A request for all that can be known about the refs under `prefixes`.
    pub fn full(prefixes: &[&[u8]]) -> Self {
        let prefixes = prefixes.iter().map(|prefix| prefix.to_vec()).collect();
        Self { prefixes, peel: true, symrefs: true, unborn: true }
    }

    /// Reads the arguments of a client's command, up to their flush.
    pub fn parse(args: &mut Reader<'_>) -> Result<Self, RequestError> {
        let mut found = Self::default();
        let mut prefixes = 0_usize;
        loop {
            let line = match args.packet()? {
                None => return Err(RequestError::Truncated),
                Some(Packet::Delim | Packet::ResponseEnd) => return Err(RequestError::Marker),
                Some(Packet::Flush) => break,
                Some(Packet::Data(line)) => chomp(line),
            };
            match line {
                b"peel" => found.peel = true,
                b"symrefs" => found.symrefs = true,
                b"unborn" => found.unborn = true,
                _ => {
                    let prefix = line.strip_prefix(b"ref-prefix ");
                    let prefix = prefix.filter(|prefix| prefix.len() <= LONGEST_NAME);
                    let prefix = prefix.ok_or_else(|| RequestError::Line(pkt::shown(line)))?;
                    prefixes += 1;
                    if prefixes <= MOST_PREFIXES {
                        found.prefixes.push(prefix.to_vec());
                    }
                }
            }
        }
        if prefixes > MOST_PREFIXES {
            found.prefixes.clear();
        }
        Ok(found)
    }

    /// Writes the whole request for an upstream that can do what `upstream` says.
    pub fn encode(&self, upstream: &Capabilities) -> Vec<u8> {
        let mut out = request::start("ls-refs", upstream);
        if self.peel {
            pkt::line(&mut out, &[b"peel"]);
        }
        if self.symrefs {
            pkt::line(&mut out, &[b"symrefs"]);
        }
        if self.unborn && upstream.has(Feature::Unborn) {
            pkt::line(&mut out, &[b"unborn"]);
        }
        for prefix in &self.prefixes {
            pkt::line(&mut out, &[b"ref-prefix ", prefix]);
        }
        pkt::flush(&mut out);
        out
    }

    /// Whether a ref of this name, or HEAD, is asked for.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether only HEAD, branches and tags are asked for.
    pub fn is_eager(&self) -> bool {
        let eager = |prefix: &Vec<u8>| prefix == b"HEAD" || crate::refs::is_eager(prefix);
        !self.prefixes.is_empty() && self.prefixes.iter().all(eager)
    }

    /// Our answer. `hide` leaves refs out; HEAD is shown as it is.
    pub fn answer(&self, table: &RefTable, hide: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut out = Vec::new();
        if self.matches(b"HEAD") {
            self.answer_head(table.head(), &mut out);
        }
        // Each ref once: a prefix within another adds nothing.
        let mut prefixes: Vec<&[u8]> = self.prefixes.iter().map(Vec::as_slice).collect();
        if prefixes.is_empty() {
            prefixes.push(b"");
        }
        prefixes.sort_unstable();
        prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter));
        for prefix in prefixes {
            for entry in table.by_prefix(prefix).iter().filter(|entry| !hide(&entry.name)) {
                self.answer_ref(entry, &mut out);
            }
        }
        pkt::flush(&mut out);
        out
    }

    fn answer_head(&self, head: Option<&Head>, out: &mut Vec<u8>) {
        let Some(head) = head else { return };
        let mut hex = Kind::hex_buf();
        let what = match head.oid() {
            Some(oid) => oid.hex_to_buf(&mut hex).as_bytes().to_vec(),
            None if self.unborn && self.symrefs => b"unborn".to_vec(),
            None => return,
        };
        match head.target().filter(|_| self.symrefs) {
            Some(target) => pkt::line(out, &[&what, b" HEAD symref-target:", target]),
            None => pkt::line(out, &[&what, b" HEAD"]),
        }
    }

    fn answer_ref(&self, entry: &Ref, out: &mut Vec<u8>) {
        let (mut hex, mut peeled_hex) = (Kind::hex_buf(), Kind::hex_buf());
        let mut parts: Vec<&[u8]> = vec![entry.oid.hex_to_buf(&mut hex).as_bytes(), b" ", &entry.name];
        if let Some(target) = entry.symref.as_ref().filter(|_| self.symrefs) {
            parts.extend([&b" symref-target:"[..], target]);
        }
        if let Some(peeled) = entry.peeled.filter(|_| self.peel) {
            parts.extend([&b" peeled:"[..], peeled.hex_to_buf(&mut peeled_hex).as_bytes()]);
        }
        pkt::line(out, &parts);
    }
}

/// Reads an upstream's whole answer, strictly to its flush.
pub fn parse_answer(body: &[u8], hash: Kind) -> Result<RefTable, AnswerError> {
    if body.is_empty() {
        return Err(AnswerError::Empty);
    }
    if is_html(body) {
        return Err(AnswerError::Html);
    }
    let mut lines = Lines { reader: Reader::new(body) };
    let mut builder = Builder::new(hash);
    let mut head = None;
    while let Some(line) = lines.next()? {
        let bad = || AnswerError::Line(pkt::shown(line));
        let (what, rest) = split_word(line);
        let (name, attributes) = split_word(rest);
        let attributes = Attributes::parse(attributes, hash).ok_or_else(bad)?;
        let oid = if what == b"unborn" { None } else { Some(object_id(what, hash).ok_or_else(bad)?) };
        if name == b"HEAD" {
            let found = match (attributes.symref, oid) {
                (Some(target), Some(oid)) => Head::Attached { target, oid },
                (Some(target), None) => Head::Unborn { target },
                (None, Some(oid)) => Head::Detached { oid },
                (None, None) => return Err(bad()),
            };
            if head.replace(found).is_some() {
                return Err(BadRefs::Twice("HEAD".to_owned()).into());
            }
        } else if let Some(oid) = oid {
            let name = RefName::new(name).map_err(BadRefs::from)?;
            builder.push(Ref { name, oid, peeled: attributes.peeled, symref: attributes.symref });
        }
        // An unborn ref other than HEAD is no ref.
    }
    if let Some(head) = head {
        builder.head(head);
    }
    match lines.reader.rest().len() {
        0 => Ok(builder.build()?),
        more => Err(AnswerError::Trailing(more)),
    }
}

#[derive(Default)]
struct Attributes {
    symref: Option<RefName>,
    peeled: Option<ObjectId>,
}

impl Attributes {
    /// Unknown attributes are passed over, known ones have to make sense.
    fn parse(text: &[u8], hash: Kind) -> Option<Self> {
        let mut found = Self::default();
        for attribute in text.split(|byte| *byte == b' ') {
            if let Some(target) = attribute.strip_prefix(b"symref-target:") {
                found.symref = Some(RefName::new(target).ok()?);
            } else if let Some(hex) = attribute.strip_prefix(b"peeled:") {
                found.peeled = Some(object_id(hex, hash)?);
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::protocol::Version, *};

    fn oid(n: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[n; 20])
    }

    fn name(text: &str) -> RefName {
        RefName::new(text.as_bytes()).unwrap()
    }

    fn table(head: Option<Head>) -> RefTable {
        let mut builder = Builder::new(Kind::Sha1);
        if let Some(head) = head {
            builder.head(head);
        }
        builder.push(Ref { name: name("refs/heads/main"), oid: oid(1), peeled: None, symref: None });
        builder.push(Ref { name: name("refs/tags/v1"), oid: oid(2), peeled: Some(oid(1)), symref: None });
        let symref = Some(name("refs/remotes/o/main"));
        builder.push(Ref { name: name("refs/remotes/o/HEAD"), oid: oid(3), peeled: None, symref });
        builder.push(Ref { name: name("refs/remotes/o/main"), oid: oid(3), peeled: None, symref: None });
        builder.build().unwrap()
    }

    fn unborn() -> Head {
        Head::Unborn { target: name("refs/heads/gone") }
    }

    fn show(body: &[u8]) -> String {
        body.escape_ascii().to_string().replace("\\n", "\n")
    }

    fn all(_: &[u8]) -> bool {
        false
    }

    #[test]
    fn an_answer_shows_what_was_asked() {
        insta::assert_snapshot!(show(&Request::full(&[]).answer(&table(Some(unborn())), &all)), @r"
        002eunborn HEAD symref-target:refs/heads/gone
        003d0101010101010101010101010101010101010101 refs/heads/main
        00630303030303030303030303030303030303030303 refs/remotes/o/HEAD symref-target:refs/remotes/o/main
        00410303030303030303030303030303030303030303 refs/remotes/o/main
        006a0202020202020202020202020202020202020202 refs/tags/v1 peeled:0101010101010101010101010101010101010101
        0000
        ");
        let plain =
            Request { prefixes: vec![b"refs/tags/".to_vec(), b"HEAD".to_vec()], ..Request::default() };
        let attached = Some(Head::Attached { target: name("refs/heads/main"), oid: oid(1) });
        insta::assert_snapshot!(show(&plain.answer(&table(attached), &all)), @r"
        00320101010101010101010101010101010101010101 HEAD
        003a0202020202020202020202020202020202020202 refs/tags/v1
        0000
        ");
        assert_eq!(plain.answer(&table(Some(unborn())), &|_| true), b"0000");
    }

    #[test]
    fn overlapping_prefixes_list_a_ref_once() {
        let request = Request::full(&[b"refs/tags/v1", b"refs/", b"refs/tags/", b"refs/tags/v1"]);
        let whole = Request::full(&[b"refs/"]).answer(&table(None), &all);
        assert_eq!(request.answer(&table(None), &all), whole);
    }

    #[test]
    fn what_is_answered_is_read_back() {
        for head in [
            None,
            Some(unborn()),
            Some(Head::Detached { oid: oid(9) }),
            Some(Head::Attached { target: name("refs/heads/hidden"), oid: oid(9) }),
        ] {
            let table = table(head);
            let body = Request::full(&[]).answer(&table, &all);
            assert_eq!(parse_answer(&body, Kind::Sha1), Ok(table));
            for end in 1..body.len() {
                assert_eq!(
                    parse_answer(&body[..end], Kind::Sha1),
                    Err(AnswerError::Truncated),
                    "cut at {end}"
                );
            }
        }
    }

    #[test]
    fn an_empty_answer_is_not_an_answer_without_refs() {
        assert_eq!(parse_answer(b"", Kind::Sha1), Err(AnswerError::Empty));
        assert_eq!(parse_answer(b"0000", Kind::Sha1), Ok(RefTable::empty(Kind::Sha1)));
        assert_eq!(parse_answer(b"<html>", Kind::Sha1), Err(AnswerError::Html));
        assert_eq!(parse_answer(b"000dERR no\nno", Kind::Sha1), Err(AnswerError::Remote("no no".into())));
        assert_eq!(parse_answer(b"00000000", Kind::Sha1), Err(AnswerError::Trailing(4)));
        assert_eq!(parse_answer(b"0001", Kind::Sha1), Err(AnswerError::Marker));
    }

    fn args(lines: &[Vec<u8>]) -> Vec<u8> {
        let mut body = Vec::new();
        for line in lines {
            pkt::line(&mut body, &[line]);
        }
        pkt::flush(&mut body);
        body
    }

    #[test]
    fn too_many_prefixes_are_none_and_an_unknown_argument_is_refused() {
        let prefix = |n: usize| format!("ref-prefix refs/heads/{n}").into_bytes();
        let parse = |lines: &[Vec<u8>]| Request::parse(&mut Reader::new(&args(lines)));
        assert_eq!(parse(&(0..64).map(prefix).collect::<Vec<_>>()).unwrap().prefixes.len(), 64);
        assert!(parse(&(0..65).map(prefix).collect::<Vec<_>>()).unwrap().prefixes.is_empty());
        assert!(matches!(parse(&[b"peeled".to_vec()]), Err(RequestError::Line(_))));
        assert_eq!(Request::parse(&mut Reader::new(b"0008peel")), Err(RequestError::Truncated));
    }

    #[test]
    fn eager_requests_are_told_from_the_rest() {
        assert!(Request::full(&[b"HEAD", b"refs/heads/", b"refs/tags/v1"]).is_eager());
        assert!(!Request::full(&[]).is_eager());
        assert!(!Request::full(&[b"refs/heads/", b"refs/"]).is_eager());
    }

    proptest! {
        #[test]
        fn a_request_is_read_back(
            prefixes in prop::collection::vec(prop::collection::vec(1u8.., 0..20), 0..5),
            flags in any::<[bool; 3]>(),
        ) {
            let prefixes = prefixes.into_iter().map(|p| chomp(&p).to_vec()).collect();
            let request = Request { prefixes, peel: flags[0], symrefs: flags[1], unborn: flags[2] };
            let upstream = Capabilities::new(Version::V2, Kind::Sha1)
                .with(&[Feature::Unborn, Feature::ObjectFormat, Feature::Agent]);
            let body = request.encode(&upstream);
            let mut found = request::parse(&body, Kind::Sha1).unwrap().unwrap();
            prop_assert_eq!(found.command, request::Command::LsRefs);
            prop_assert_eq!(Request::parse(&mut found.args), Ok(request));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_answer(&bytes, Kind::Sha1);
            let _ = Request::parse(&mut Reader::new(&bytes));
        }
    }
}

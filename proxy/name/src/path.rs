//! Which URL paths are let in. Rules: a path is passed on byte for byte or
//! refused, never repaired, so that our idea of it and the upstream's agree.

/// Why a path was refused. The text says what to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// `.` or `..`, in any spelling.
    #[error("the path has a `.` or `..` segment; write the path it stands for")]
    Dots,
    /// `//`, or a slash where a repository path would need a name.
    #[error("the path has an empty segment; remove the doubled slash")]
    EmptySegment,
    /// An escaped slash, backslash or NUL.
    #[error("the path has an escaped slash, backslash or NUL; these are not accepted")]
    EscapedSeparator,
    /// A control byte, a space or a backslash, raw or escaped.
    #[error("the path has a control byte or backslash; these are not accepted")]
    Control,
    /// `%` without two hex digits behind it.
    #[error("the path has a `%` that is not an escape")]
    BrokenEscape,
}

/// Checks a URL path (it starts with `/`, without query) as section "URLs" of
/// the contract has it.
///
/// One empty segment right before `info/refs`, `git-upload-pack` or
/// `git-receive-pack` is let through: clients append those to a repository URL
/// that ends in a slash. A slash at the very end is let through too.
pub fn check_path(path: &str) -> Result<(), BadPath> {
    let rest = path.strip_prefix('/').unwrap_or(path);
    let mut segments = rest.split('/').peekable();
    let mut first = true;
    while let Some(segment) = segments.next() {
        if segment.is_empty() {
            let last = segments.peek().is_none();
            let before_service = !first
                && matches!(
                    rest_of(&segments).as_str(),
                    "info/refs" | "git-upload-pack" | "git-receive-pack"
                );
            if !last && !before_service {
                return Err(BadPath::EmptySegment);
            }
        }
        check_segment(segment)?;
        first = false;
    }
    Ok(())
}

fn rest_of<'a>(segments: &(impl Iterator<Item = &'a str> + Clone)) -> String {
    // Three segments are enough to tell `info/refs` from `info/refs/more`.
    segments.clone().take(3).collect::<Vec<_>>().join("/")
}

fn check_segment(segment: &str) -> Result<(), BadPath> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(BadPath::BrokenEscape);
                };
                let byte = u8::try_from(high * 16 + low).map_err(|_| BadPath::BrokenEscape)?;
                match byte {
                    b'/' | b'\\' | 0 => return Err(BadPath::EscapedSeparator),
                    1..=0x1f | 0x7f => return Err(BadPath::Control),
                    _ => decoded.push(byte),
                }
            }
            0..=0x20 | 0x7f | b'\\' => return Err(BadPath::Control),
            _ => decoded.push(byte),
        }
    }
    if matches!(decoded.as_slice(), b"." | b"..") {
        return Err(BadPath::Dots);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_and_their_escapes_pass() {
        for path in [
            "/org/app.git/info/refs",
            "/a/b%20c",
            "/a/%2525",
            "/a/%c3%a9/",
            "/",
            "/a/..b",
            "/charts/app-1.2.0%2Bup.tgz",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_trailing_slash_of_the_repository_url_passes() {
        for path in ["/org/app//info/refs", "/org/app.git//git-upload-pack", "/org/app//git-receive-pack"] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn tricks_are_refused_each_with_its_reason() {
        for (path, why) in [
            ("/a/../b", BadPath::Dots),
            ("/a/%2e%2E/b", BadPath::Dots),
            ("/a/.%2e", BadPath::Dots),
            ("/./a", BadPath::Dots),
            ("//a", BadPath::EmptySegment),
            ("/a//b", BadPath::EmptySegment),
            ("/a///info/refs", BadPath::EmptySegment),
            ("/a//info/refs/x", BadPath::EmptySegment),
            ("//info/refs", BadPath::EmptySegment),
            ("/a%2fb", BadPath::EscapedSeparator),
            ("/a%5Cb", BadPath::EscapedSeparator),
            ("/a%00", BadPath::EscapedSeparator),
            ("/a%0a", BadPath::Control),
            ("/a\\b", BadPath::Control),
            ("/a%zz", BadPath::BrokenEscape),
            ("/a%2", BadPath::BrokenEscape),
        ] {
            assert_eq!(check_path(path), Err(why), "{path}");
        }
    }
}

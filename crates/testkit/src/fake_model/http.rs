//! The few lines of HTTP/1.1 the fake model needs, on `std::net`.
//!
//! Written here and not taken from a server crate because a test must be able to do what a server
//! crate prevents: close a connection in the middle of a stream, and hold one open for ever
//! without holding a worker. One request per connection (`connection: close`), head and body
//! bounded.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

const MAX_HEAD_BYTES: u64 = 64 * 1024;
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;

/// A request as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// Reads one request; none when the peer closed without sending one.
pub(super) fn read(stream: &TcpStream) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream);
    let mut head = reader.by_ref().take(MAX_HEAD_BYTES);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let path = words.next().unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    if headers.get("expect").is_some_and(|it| it == "100-continue") {
        (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = read_body(&mut reader, &headers)?;
    Ok(Some(Request {
        method,
        path,
        headers,
        body,
    }))
}

fn read_body(reader: &mut impl BufRead, headers: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        let length: u64 = length.parse().map_err(io::Error::other)?;
        reader
            .take(length.min(MAX_BODY_BYTES))
            .read_to_end(&mut body)?;
        return Ok(body);
    }
    if headers.get("transfer-encoding").map(String::as_str) != Some("chunked") {
        return Ok(body);
    }
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let digits = size.trim().split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
        if body.len() as u64 + size > MAX_BODY_BYTES {
            return Err(io::Error::other("body too large"));
        }
        reader.take(size).read_to_end(&mut body)?;
        reader.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Writes a whole response.
pub(super) fn respond(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let length = ("content-length".to_owned(), body.len().to_string());
    let mut headers = headers.to_vec();
    headers.push(length);
    write_head(stream, status, &headers)?;
    stream.write_all(body)?;
    stream.flush()
}

/// Writes the head of a response whose body ends with the connection.
pub(super) fn write_head(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(String, String)],
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Fake\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    stream.flush()
}

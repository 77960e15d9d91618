//! The layout that the guest kernel expects, field by field.

use super::*;

fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Out::default();
    out.u32((REQUEST_HEADER + body.len()) as u32)
        .u32(opcode)
        .u64(77)
        .u64(node);
    out.u32(1000).u32(1000).u32(42).u32(0);
    out.0.extend_from_slice(body);
    out.0
}

fn file() -> Attributes {
    Attributes {
        inode: 5,
        size: 6,
        blocks: 7,
        times: [-1, 2_000_000_003, 4],
        mode: libc::S_IFREG | 0o640,
        links: 2,
    }
}

#[test]
fn reads_a_request() {
    let bytes = request(op::LOOKUP, 9, b"na\xffme\0");
    let found = Request::parse(&bytes).unwrap();
    assert_eq!((found.opcode, found.unique, found.node), (op::LOOKUP, 77, 9));
    assert_eq!(found.name(), Some(&b"na\xffme"[..]));
    for end in 0..bytes.len() {
        assert!(Request::parse(&bytes[..end]).is_none());
    }
}

#[test]
fn missing_fields_are_none() {
    let bytes = request(op::READ, 9, b"");
    let found = Request::parse(&bytes).unwrap();
    assert!(found.range().is_none() && found.number().is_none() && !found.wants_to_write());
    assert!(found.init().is_none());
    assert_eq!(found.forgets().count(), 0);
}

#[test]
fn reads_ranges_and_forgets() {
    let mut body = Out::default();
    body.u64(3).u64(1 << 40).u32(4096).u32(0).u64(0).u32(0).u32(0);
    let bytes = request(op::READ, 9, &body.0);
    assert_eq!(Request::parse(&bytes).unwrap().range(), Some((3, 1 << 40, 4096)));

    let mut body = Out::default();
    // the count is three, but there are two
    body.u32(3).u32(0).u64(10).u64(1).u64(11).u64(2);
    let bytes = request(op::BATCH_FORGET, 0, &body.0);
    let all: Vec<_> = Request::parse(&bytes).unwrap().forgets().collect();
    assert_eq!(all, [(10, 1), (11, 2)]);
}

#[test]
fn negotiates_the_common_features() {
    let init = |major: u32, minor: u32, flags: u32| {
        let mut body = Out::default();
        body.u32(major).u32(minor).u32(131_072).u32(flags);
        Request::parse(&request(op::INIT, 0, &body.0)).unwrap().init()
    };
    let answer = init(7, 41, u32::MAX).unwrap();
    assert_eq!(answer.len(), 64);
    assert_eq!((u32_at(&answer, 0), u32_at(&answer, 4)), (Some(7), Some(31)));
    assert_eq!(u32_at(&answer, 12), Some(FLAGS));
    assert_eq!(u32_at(&init(7, 31, ASYNC_READ).unwrap(), 12), Some(ASYNC_READ));
    assert!(init(7, 30, 0).is_none() && init(8, 0, 0).is_none());
}

#[test]
fn answers_have_the_sizes_of_the_kernel() {
    let found = file();
    assert_eq!(entry(Some((9, &found))).len(), 128);
    assert_eq!(attributes(&found).len(), 104);
    assert_eq!(opened(1).len(), 16);
    assert_eq!(statistics().len(), 80);
    assert_eq!(
        answer_head(77, Ok(100)),
        [116, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        answer_head(77, Err(libc::ENOENT)),
        [16, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 77, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn attributes_have_the_layout_of_the_kernel() {
    let bytes = attributes(&file());
    assert_eq!(u64_at(&bytes, 0), Some(1));
    let at = &bytes[16..];
    assert_eq!(
        (u64_at(at, 0), u64_at(at, 8), u64_at(at, 16)),
        (Some(5), Some(6), Some(7))
    );
    // a time before 1970 has positive nanoseconds
    assert_eq!((u64_at(at, 24), u32_at(at, 48)), (Some(u64::MAX), Some(999_999_999)));
    assert_eq!((u64_at(at, 32), u32_at(at, 52)), (Some(2), Some(3)));
    assert_eq!((u32_at(at, 60), u32_at(at, 64)), (Some(libc::S_IFREG | 0o640), Some(2)));
    // owned by root
    assert_eq!((u32_at(at, 68), u32_at(at, 72)), (Some(0), Some(0)));
}

#[test]
fn a_missing_name_is_an_entry_without_a_node() {
    let bytes = entry(None);
    assert_eq!(
        (bytes.len(), u64_at(&bytes, 0), u64_at(&bytes, 16)),
        (128, Some(0), Some(1))
    );
}

#[test]
fn a_folder_is_filled_up_to_its_size() {
    let found = file();
    for plus in [false, true] {
        let head = if plus { 152 } else { 24 };
        let mut folder = Folder::new(2 * head + 24, plus);
        assert!(folder.fits(b"123456789"));
        folder.add(1, b"123456789", 5, found.kind(), Some((9, &found)));
        assert_eq!(folder.out.0.len(), head as usize + 16);
        assert!(folder.fits(b"12345678") && !folder.fits(b"123456789"));
        let entry = &folder.out.0[head as usize - 24..];
        assert_eq!((u64_at(entry, 0), u64_at(entry, 8)), (Some(5), Some(1)));
        assert_eq!((u32_at(entry, 16), u32_at(entry, 20)), (Some(9), Some(8)));
        assert_eq!(&entry[24..33], b"123456789");
    }
}

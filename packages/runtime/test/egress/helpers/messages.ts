// DNS messages as a program sends and reads them.

export function query(name: string, type: number, id = 0x1234): Buffer {
  const labels = name.split(".").filter((label) => label !== "");
  const encoded = labels.map((label) => Buffer.concat([Buffer.of(label.length), Buffer.from(label, "latin1")]));
  const header = Buffer.from([id >> 8, id & 0xff, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  return Buffer.concat([header, ...encoded, Buffer.of(0, type >> 8, type & 0xff, 0, 1)]);
}

/** The records of an answer to one question */
export function readAnswers(message: Buffer): { type: number; ttl: number; data: Buffer }[] {
  let at = 12;
  while (message[at] !== 0) at += 1 + (message[at] ?? 0);
  at += 5;
  return Array.from({ length: message.readUInt16BE(6) }, () => {
    const size = message.readUInt16BE(at + 10);
    const record = {
      type: message.readUInt16BE(at + 2),
      ttl: message.readUInt32BE(at + 6),
      data: message.subarray(at + 12, at + 12 + size),
    };
    at += 12 + size;
    return record;
  });
}

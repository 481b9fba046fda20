// safetensors with 32-bit floats: read with every number in the header doubted, and written in the same layout.
import { isObject } from "./platform.js";
export class NoModel extends Error {
}
export function read(file) {
    if (file.length < 8)
        throw new NoModel("the file ends within its first eight bytes");
    const length = Number(file.readBigUInt64LE(0));
    if (length > file.length - 8)
        throw new NoModel("the file ends within its header");
    const header = JSON.parse(file.toString("utf8", 8, 8 + length));
    if (!isObject(header))
        throw new NoModel("the header is no object");
    const tensors = new Map();
    for (const [name, about] of Object.entries(header)) {
        if (name === "__metadata__")
            continue;
        if (!isObject(about) || about["dtype"] !== "F32" || !wholes(about["shape"]) || !wholes(about["data_offsets"]))
            throw new NoModel(`${name} is no tensor of 32-bit floats`);
        const [start = 0, stop = 0] = about["data_offsets"];
        const count = about["shape"].reduce((product, size) => product * size, 1);
        if (stop - start !== 4 * count || 8 + length + stop > file.length)
            throw new NoModel(`${name} lies outside the file`);
        const data = new Float32Array(count);
        for (let at = 0; at < count; at++)
            data[at] = file.readFloatLE(8 + length + start + 4 * at);
        tensors.set(name, { shape: about["shape"], data });
    }
    return tensors;
}
export function write(tensors) {
    const header = {};
    const parts = [];
    let offset = 0;
    for (const [name, { shape, data }] of tensors) {
        const part = Buffer.alloc(4 * data.length);
        data.forEach((value, at) => part.writeFloatLE(value, 4 * at));
        header[name] = { dtype: "F32", shape, data_offsets: [offset, offset + part.length] };
        offset += part.length;
        parts.push(part);
    }
    const text = JSON.stringify(header);
    const line = Buffer.from(text + " ".repeat((8 - (text.length % 8)) % 8));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(line.length));
    return Buffer.concat([length, line, ...parts]);
}
function wholes(value) {
    return Array.isArray(value) && value.every((each) => Number.isSafeInteger(each) && each >= 0);
}

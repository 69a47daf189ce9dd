package org.mpca.wire;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePackException;
import org.msgpack.core.MessageUnpacker;
import org.msgpack.value.ValueType;

/**
 * Plain values to msgpack bytes and back. Knows nothing of messages.
 *
 * <p>To bytes: null, Boolean, Integer, Long, Float, Double, String, byte[], List, Map, int[], long[]. Back: null,
 * Boolean, Long, Double, String, byte[], List, Map in the order of the bytes. A map's keys are strings or whole
 * numbers. What a peer says is not believed: bytes, nesting and declared sizes have limits, and nothing is allocated
 * for a declared size before so many bytes are there.
 *
 * <p>Concurrency: stateless.
 */
public final class Msgpack {
    /** Levels of lists and maps inside each other. */
    public static final int MAX_DEPTH = 32;
    /** Bytes of one packed value; the same limit as for a frame. */
    public static final int MAX_BYTES = 64 << 20;

    private Msgpack() {}

    /** Packs one value. */
    public static byte[] pack(Object value) {
        try (MessageBufferPacker packer = MessagePack.newDefaultBufferPacker()) {
            write(packer, value, 0);
            byte[] bytes = packer.toByteArray();
            if (bytes.length > MAX_BYTES) {
                throw new IllegalArgumentException("value too large: bytes=" + bytes.length + ", limit=" + MAX_BYTES);
            }
            return bytes;
        } catch (IOException e) {
            throw new IllegalStateException("packing into memory failed", e);
        }
    }

    /**
     * Unpacks exactly one value.
     *
     * @throws ProtocolException the bytes are not one value within the limits
     */
    public static Object unpack(byte[] bytes) throws ProtocolException {
        if (bytes.length > MAX_BYTES) {
            throw new ProtocolException("value too large: bytes=" + bytes.length + ", limit=" + MAX_BYTES);
        }
        try (MessageUnpacker unpacker = MessagePack.newDefaultUnpacker(bytes)) {
            Object value = read(unpacker, bytes.length, 0);
            if (unpacker.hasNext()) {
                throw new ProtocolException(
                        "bytes after the value: at=" + unpacker.getTotalReadBytes() + ", bytes=" + bytes.length);
            }
            return value;
        } catch (ProtocolException e) {
            throw e;
        } catch (IOException | MessagePackException e) {
            throw new ProtocolException("not msgpack: bytes=" + bytes.length + ", cause=" + e);
        }
    }

    private static void write(MessageBufferPacker packer, Object value, int depth) throws IOException {
        if (depth > MAX_DEPTH) {
            throw new IllegalArgumentException("value nested too deep: limit=" + MAX_DEPTH);
        }
        if (value == null) {
            packer.packNil();
        } else if (value instanceof Boolean) {
            packer.packBoolean((Boolean) value);
        } else if (value instanceof Double || value instanceof Float) {
            packer.packDouble(((Number) value).doubleValue());
        } else if (value instanceof Integer || value instanceof Long || value instanceof Short) {
            packer.packLong(((Number) value).longValue());
        } else if (value instanceof String) {
            packer.packString((String) value);
        } else if (value instanceof byte[]) {
            byte[] bytes = (byte[]) value;
            packer.packBinaryHeader(bytes.length);
            packer.writePayload(bytes);
        } else if (value instanceof List) {
            List<?> list = (List<?>) value;
            packer.packArrayHeader(list.size());
            for (Object one : list) {
                write(packer, one, depth + 1);
            }
        } else if (value instanceof Map) {
            Map<?, ?> map = (Map<?, ?>) value;
            packer.packMapHeader(map.size());
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                write(packer, entry.getKey(), depth + 1);
                write(packer, entry.getValue(), depth + 1);
            }
        } else if (value instanceof int[]) {
            int[] numbers = (int[]) value;
            packer.packArrayHeader(numbers.length);
            for (int number : numbers) {
                packer.packLong(number);
            }
        } else if (value instanceof long[]) {
            long[] numbers = (long[]) value;
            packer.packArrayHeader(numbers.length);
            for (long number : numbers) {
                packer.packLong(number);
            }
        } else {
            throw new IllegalArgumentException(
                    "cannot pack: class=" + value.getClass().getName());
        }
    }

    private static Object read(MessageUnpacker unpacker, int total, int depth) throws IOException {
        if (depth > MAX_DEPTH) {
            throw new ProtocolException("value nested too deep: limit=" + MAX_DEPTH);
        }
        ValueType type = unpacker.getNextFormat().getValueType();
        switch (type) {
            case NIL:
                unpacker.unpackNil();
                return null;
            case BOOLEAN:
                return unpacker.unpackBoolean();
            case INTEGER:
                return unpacker.unpackLong();
            case FLOAT:
                return unpacker.unpackDouble();
            case STRING:
                return new String(payload(unpacker, unpacker.unpackRawStringHeader(), total), StandardCharsets.UTF_8);
            case BINARY:
                return payload(unpacker, unpacker.unpackBinaryHeader(), total);
            case ARRAY: {
                int size = room(unpacker, unpacker.unpackArrayHeader(), total);
                List<Object> list = new ArrayList<>(Math.min(size, 1024));
                for (int i = 0; i < size; i++) {
                    list.add(read(unpacker, total, depth + 1));
                }
                return list;
            }
            case MAP: {
                int size = room(unpacker, unpacker.unpackMapHeader(), total);
                Map<Object, Object> map = new LinkedHashMap<>();
                for (int i = 0; i < size; i++) {
                    Object key = read(unpacker, total, depth + 1);
                    if (!(key instanceof String) && !(key instanceof Long)) {
                        throw new ProtocolException("key of a map is neither text nor number: " + key);
                    }
                    if (map.put(key, read(unpacker, total, depth + 1)) != null) {
                        throw new ProtocolException("key of a map occurs twice: " + key);
                    }
                }
                return map;
            }
            default:
                throw new ProtocolException("type of value not allowed: " + type);
        }
    }

    private static byte[] payload(MessageUnpacker unpacker, int size, int total) throws IOException {
        return unpacker.readPayload(room(unpacker, size, total));
    }

    /** Every element takes at least a byte, so a declared size beyond what is left is a lie. */
    private static int room(MessageUnpacker unpacker, int size, int total) throws ProtocolException {
        long left = total - unpacker.getTotalReadBytes();
        if (size < 0 || size > left) {
            throw new ProtocolException("declared size is beyond the bytes: size=" + size + ", left=" + left);
        }
        return size;
    }
}

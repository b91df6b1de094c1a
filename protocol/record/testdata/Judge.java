import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.function.Supplier;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** Asks Kafka's own classes about the cases of judge_test.go; see README.md. */
public class Judge {
    static final long NOW = 1700000100000L;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] f = line.split("\t", -1);
            byte[] bytes = HexFormat.of().parseHex(f[3]);
            String result;
            try {
                result = f[1].equals("down") ? down(f[2], bytes) : validate(f[2], bytes);
            } catch (RecordValidationException e) {
                StringBuilder s = new StringBuilder(error(e.invalidException()));
                e.recordErrors().forEach(r -> s.append("\t").append(r.batchIndex).append(":").append(r.message));
                result = s.toString();
            } catch (Throwable e) {
                result = error(e);
            }
            System.out.println(f[0] + "\t" + result);
        }
    }

    static String error(Throwable e) {
        return "error\t" + Errors.forException(e) + "\t" + e.getMessage();
    }

    static String down(String params, byte[] bytes) {
        String[] p = params.split(" ");
        MemoryRecords out = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes))
            .downConvert(Byte.parseByte(p[0]), Long.parseLong(p[1]), clock()).records();
        return "ok\t" + hex(out);
    }

    static String validate(String params, byte[] bytes) throws Exception {
        String[] p = params.split(" "); // origin version type codec compacted before after
        AppendOrigin origin = p[0].equals("client") ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR;
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        if (origin == AppendOrigin.CLIENT)
            ProduceRequest.validateRecords(Short.parseShort(p[1]), records);
        // UnifiedLog.analyzeAndValidateRecords, which cannot be called by itself
        CompressionType source = CompressionType.NONE;
        int valid = 0;
        for (MutableRecordBatch b : records.batches()) {
            if (b.magic() >= 2 && origin == AppendOrigin.CLIENT && b.baseOffset() != 0)
                throw new InvalidRecordException("The baseOffset of the record batch in the append to t-0 should be 0, but it is " + b.baseOffset());
            if (!b.isValid())
                throw new CorruptRecordException("Record is corrupt (stored crc = " + b.checksum() + ") in topic partition t-0.");
            if (b.compressionType() != CompressionType.NONE)
                source = b.compressionType();
            valid += b.sizeInBytes();
        }
        if (valid == 0)
            return "ok\t\t-1";
        records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes, 0, valid).slice());
        Compression target = Compression.of(p[3].equals("producer") ? source : CompressionType.forName(p[3])).build();
        LogValidator v = new LogValidator(records, new TopicPartition("t", 0), clock(), source, target, p[4].equals("1"), (byte) 2,
            p[2].equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            Long.parseLong(p[5]), Long.parseLong(p[6]), 0, origin, MetadataVersion.LATEST_PRODUCTION);
        LogValidator.ValidationResult r = v.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), new LogValidator.MetricsRecorder() {
            public void recordInvalidMagic() { }
            public void recordInvalidOffset() { }
            public void recordInvalidSequence() { }
            public void recordInvalidChecksums() { }
            public void recordNoKeyCompactedTopic() { }
        }, BufferSupplier.NO_CACHING);
        return "ok\t" + hex(r.validatedRecords) + "\t" + r.maxTimestampMs;
    }

    static String hex(MemoryRecords r) {
        ByteBuffer b = r.buffer();
        byte[] out = new byte[b.remaining()];
        b.get(out);
        return HexFormat.of().formatHex(out);
    }

    static Time clock() {
        return new Time() {
            public long milliseconds() { return NOW; }
            public long nanoseconds() { return 0; }
            public void sleep(long ms) { }
            public void waitObject(Object o, Supplier<Boolean> c, long ms) { }
        };
    }
}

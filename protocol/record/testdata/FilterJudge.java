import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/** Has Kafka's own class filter the cases of filter_judge_test.go; see README.md. */
public class FilterJudge {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] f = line.split("\t", -1);
            String[] p = f[1].split(",");
            long every = Long.parseLong(p[0]);
            BatchRetention retention = p[1].equals("keep") ? BatchRetention.RETAIN_EMPTY : BatchRetention.DELETE_EMPTY;
            boolean marker = p[2].equals("horizon");
            MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(1700000000000L, 60000L) {
                @Override
                protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                    return new BatchRetentionResult(retention, marker);
                }

                @Override
                protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                    return record.offset() % every == 1 % every;
                }
            };
            ByteBuffer out = ByteBuffer.allocate(1 << 20);
            String result;
            try {
                MemoryRecords.FilterResult r = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(f[2])))
                    .filterTo(new TopicPartition("t", 0), filter, out, 1 << 20, BufferSupplier.NO_CACHING);
                ByteBuffer b = r.outputBuffer();
                b.flip();
                byte[] bytes = new byte[b.remaining()];
                b.get(bytes);
                result = r.messagesRead() + "\t" + r.messagesRetained() + "\t" + HexFormat.of().formatHex(bytes);
            } catch (Exception e) {
                result = e.getClass().getSimpleName() + "\t\t";
            }
            System.out.println(f[0] + "\t" + result);
        }
    }
}

package org.mpca.bridge;

import java.io.IOException;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.security.token.TokenIdentifier;
import org.apache.hadoop.security.token.delegation.AbstractDelegationTokenIdentifier;

/**
 * Tokens by which HDFS takes this JVM, and the executors, for their user: until when, for {@code mpca/spark/run/tokens.py}.
 * Spark gets them and hands them out; nothing here changes one of them.
 */
final class HdfsTokens {
    private static final Text KIND = new Text("HDFS_DELEGATION_TOKEN");

    private HdfsTokens() {}

    /** Of each token that the JVM holds, when it was issued and when it ends at the latest: [[ms since 1970, ms], ...]. */
    static List<List<Long>> held() throws IOException {
        List<List<Long>> found = new ArrayList<>();
        for (Token<? extends TokenIdentifier> one :
                UserGroupInformation.getCurrentUser().getCredentials().getAllTokens()) {
            if (KIND.equals(one.getKind())) {
                AbstractDelegationTokenIdentifier says = (AbstractDelegationTokenIdentifier) one.decodeIdentifier();
                found.add(Arrays.asList(says.getIssueDate(), says.getMaxDate()));
            }
        }
        return found;
    }

    /**
     * For how many milliseconds a new token of the default file system is good when nobody renews it, as nobody does with
     * those that Spark gets by a keytab. Only the NameNode knows, so one is asked for, renewed once, and given back.
     */
    static long goodFor(Configuration conf, String principal, String keytab) throws IOException, InterruptedException {
        UserGroupInformation own = UserGroupInformation.loginUserFromKeytabAndReturnUGI(principal, keytab);
        return own.doAs((PrivilegedExceptionAction<Long>) () -> {
            try (FileSystem files = FileSystem.newInstance(conf)) {
                Token<?> token = files.getDelegationToken(own.getShortUserName());
                if (token == null || !KIND.equals(token.getKind())) {
                    return Long.MAX_VALUE; // no HDFS
                }
                long ends = token.renew(conf);
                token.cancel(conf);
                return ends - ((AbstractDelegationTokenIdentifier) token.decodeIdentifier()).getIssueDate();
            }
        });
    }
}

-- Notes that all work of a leader has ended: the next one need not wait. Of a leader that still waits for
-- the one before, which may work, it notes only that it has gone.
--
-- KEYS[1]  companion
-- ARGV[1]  owner
-- ARGV[2]  milliseconds for which the note is kept
-- ARGV[3]  commands for announce
-- ARGV[4]  channel
--
-- reply    1, also if there is nothing to note
if redis.call('hget', KEYS[1], 'owner') == ARGV[1] then
    -- The greatest seq: a late request of this term, executed before the lock is free, changes nothing.
    redis.call('hset', KEYS[1], 'seq', '9007199254740991')
    if redis.call('hget', KEYS[1], 'wait') == '0' then
        redis.call('hset', KEYS[1], 'resigned', 1)
    end
    redis.call('hdel', KEYS[1], 'value')
    redis.call('pexpire', KEYS[1], ARGV[2])
    announce(ARGV[3], ARGV[4], '0')
end
return 1

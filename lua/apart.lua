-- Serves a queue without its lock: while their cluster slot moves, queue and lock may be on
-- different nodes, and the server refuses a script with both keys.
--
-- KEYS[1]  queue
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  tickets to take out: owners, with spaces between
-- ARGV[3]  1 if the lock was released: the first owner that can hear is to ask for it
--
-- reply    1
local queue = KEYS[1]
for ticket in string.gmatch(ARGV[2], '%S+') do
    redis.pcall('zrem', queue, ticket)
end
if ARGV[3] == '1' then
    local owner, score, record = first(queue)
    if record then
        redis.call('zrem', queue, record)
    end
    while owner and tell(queue, ARGV[1], client(owner), score % 4, owner) == false do
        redis.call('zrem', queue, owner)
        owner, score = first(queue)
    end
end
return 1

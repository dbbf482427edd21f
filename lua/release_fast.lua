-- Stands before the rest of release: for locks that nobody waits for; or for one lock, whose next owner
-- is of a client that hears, is not the own client, and has no ticket directly behind. To define the
-- functions below, and to call them for each lock, would cost more than this. A lock that fails here is
-- left to the functions below, and fails there in the same way.
--
-- If the server refuses a command before HDEL, nothing is done. If it refuses a later one, the next
-- owner gets the former place back, and freed tells the functions that the owner is removed:
--
--   the slot of the lock moves to another node; b:1 waits, and hears
--   release a:1       HDEL a:1: the key is gone. HSET b:1: refused, as this node makes no key anew.
--                     The functions go on with a free lock, and b:1 hears that it may ask
local call, replies, freed, left = redis.pcall, {}, false, false
for i = 1, #KEYS / 2 do
    local key, queue, owner, command = KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i - 2], ARGV[3 * i - 1]
    local unlocks = 'redisson_lock__channel:' .. (string.find(key, '{', 1, true) and key or '{' .. key .. '}')
    local queued = ARGV[3 * i] == '' and command ~= 'PUBLISH SPUBLISH' and call('exists', queue)
    if queued == 0 and call('hdel', key, owner) == 1 then
        local heard = call(command, unlocks, '-0')
        replies[i] = type(heard) == 'table' and {1, heard.err} or 1
    elseif queued == 1 and #KEYS == 2 then
        local head = call('zrange', queue, 0, 2, 'withscores')
        local at = head[1] == '!' .. owner and 3 or 1 -- behind the record of this grant
        local next, score, behind = head[at] or '', tonumber(head[at + 1]) or 0, head[at + 2]
        local prefix, how, claim = string.match(next, '^.*:'), score % 4, math.floor(score / 4) % 8192
        if prefix and command == (how == 3 and 'SPUBLISH' or how > 0 and 'PUBLISH') -- the record of another grant has 0
            and prefix ~= string.sub(owner, 1, #prefix) and prefix ~= string.sub(behind or '', 1, #prefix) and behind ~= owner then
            local ours = 'rlock_channel' .. string.sub(queue, 12) .. ':' .. string.sub(prefix, 1, -2)
            local heard, time = call('pubsub', how == 3 and 'shardnumsub' or 'numsub', unlocks, ours), call('time')
            if heard[2] == 0 and (heard[4] > 0 or how == 2) and time[1]
                and type(call('zrem', queue, owner)) == 'number' and call('hdel', key, owner) == 1 then
                local text = next .. ' ' .. time[1] .. string.format('%06d', time[2]) .. ' ' .. claim .. ' 0 0'
                if call('pexpire', queue, behind and 60000 or claim) == 1 and call('hset', key, next, '1') == 1
                    and call('pexpire', key, claim) == 1 and call('zadd', queue, 0, '!' .. next) == 1
                    and call('zrem', queue, next, '!' .. owner) and type(call(command, ours, text)) == 'number' then
                    return 1
                end
                call('zadd', queue, head[at + 1], next)
                call('zrem', queue, '!' .. next)
                freed = true
            end
        end
    end
    left = left or not replies[i]
end
if not left then
    return #KEYS == 2 and replies[1] or replies
end
